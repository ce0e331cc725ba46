#include "support/streamed_checkpoint.h"

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <variant>

#include "support/safetensors_builder.h"

namespace k3::test {

std::vector<ReadingFaults> reading_faults() {
  return {{"None", {}},
          {"Buffered", {}, false},
          {"ShortCounts", {.max_read_bytes = 77}},
          {"ShortBlocks", {.max_read_bytes = 512, .alignment = 4096}},
          {"Interruptions", {.interruptions_per_read = 7}},
          {"NoDirectOpen", {.refuse_direct = true}},
          {"NoDirectReads", {.refuse_direct_reads = true}},
          {"Slow", {.read_delay = std::chrono::microseconds(50)}},
          {"LargeBlocks", {.alignment = 4096}}};
}

void shift_tensors(const std::filesystem::path& file, std::size_t bytes) {
  const std::string whole = read_file(file);
  std::uint64_t header = 0;
  std::memcpy(&header, whole.data(), sizeof(header));
  write_file(file, safetensors_bytes(whole.substr(sizeof(header), header) + std::string(bytes, ' '),
                                     whole.substr(sizeof(header) + header)));
}

std::span<const std::byte> dense_bytes(const MatrixView& view) {
  const auto bytes = [](const auto& m) -> std::span<const std::byte> {
    if (m.stride != m.cols) {
      throw std::logic_error("rows are not dense");
    }
    return std::as_bytes(std::span(m.data, m.rows * m.cols));
  };
  if (const auto* bf16 = std::get_if<Bf16Matrix>(&view)) {
    return bytes(*bf16);
  }
  return bytes(std::get<F32Matrix>(view));
}

std::string tensor_bytes(const runtime::Checkpoint& checkpoint,
                         const runtime::TensorExtent& extent) {
  std::string bytes(static_cast<std::size_t>(extent.nbytes), '\0');
  checkpoint.read_bytes(extent, 0, std::as_writable_bytes(std::span(bytes.data(), bytes.size())));
  return bytes;
}

}  // namespace k3::test

// Any bytes as a safetensors file: the reader refuses them with an Error or gives tensors that lie
// within the file and do not overlap.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <span>
#include <utility>
#include <vector>

#include "k3/errors.h"

#include "io/file.h"
#include "io/safetensors_header.h"

namespace {

using k3::io::HeaderTensor;

// The input as a file.
class MemoryFile final : public k3::io::File {
 public:
  explicit MemoryFile(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

  k3::io::ReadResult read_some(std::uint64_t offset, std::span<std::byte> out) noexcept override {
    if (offset >= bytes_.size()) {
      return {};
    }
    const std::size_t size = std::min<std::size_t>(out.size(), bytes_.size() - offset);
    std::memcpy(out.data(), bytes_.data() + offset, size);
    return {.bytes = size, .error = 0};
  }

  [[nodiscard]] std::uint64_t size() const noexcept override { return bytes_.size(); }

  [[nodiscard]] const std::filesystem::path& path() const noexcept override { return path_; }

 private:
  std::span<const std::uint8_t> bytes_;
  std::filesystem::path path_ = "fuzz.safetensors";
};

void require(bool holds) {
  if (!holds) {
    std::abort();  // libFuzzer reports the input
  }
}

void check(std::span<const HeaderTensor> tensors, std::uint64_t file_bytes) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
  for (const HeaderTensor& tensor : tensors) {
    require(tensor.offset >= 8 && tensor.offset <= file_bytes);
    require(tensor.nbytes <= file_bytes - tensor.offset);
    std::uint64_t elements = tensor.dtype == k3::DType::kOther ? 0 : 1;
    for (const std::uint64_t extent : tensor.shape) {
      elements *= extent;
    }
    require(tensor.dtype == k3::DType::kOther ||
            elements * k3::dtype_size(tensor.dtype) == tensor.nbytes);
    if (tensor.nbytes > 0) {
      ranges.emplace_back(tensor.offset, tensor.offset + tensor.nbytes);
    }
  }
  std::sort(ranges.begin(), ranges.end());
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    require(ranges[i - 1].second <= ranges[i].first);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  k3::io::SafetensorsHeader reader;
  try {
    MemoryFile file(std::span(data, size));
    check(reader.read(file), size);
  } catch (const k3::Error& error) {
    require(error.kind() == k3::ErrorKind::kCheckpoint);
  }
  try {  // without the length, which the fuzzer seldom gets right
    const std::string_view json(reinterpret_cast<const char*>(data), size);
    constexpr std::uint64_t kFileBytes = std::uint64_t{1} << 62U;
    check(reader.parse(json, kFileBytes, "fuzz"), kFileBytes);
  } catch (const k3::Error& error) {
    require(error.kind() == k3::ErrorKind::kCheckpoint);
  }
  return 0;
}

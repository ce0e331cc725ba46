// A checkpoint on disk whose weights are read through a file system with faults.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "k3/config.h"

#include "base/matrix_view.h"
#include "runtime/checkpoint.h"
#include "runtime/weight_files.h"
#include "support/faulty_file_system.h"

namespace k3::test {

// Indexed through the real file system, so that faults are counted from the first read of weights.
struct StreamedCheckpoint {
  StreamedCheckpoint(FaultyFileSystem& file_system,
                     const std::filesystem::path& directory,
                     const ModelConfig& config,
                     const runtime::ReadSettings& settings,
                     bool direct = true)
      : checkpoint(io::posix_file_system(), directory, config),
        files(file_system, checkpoint, std::nullopt, direct) {
    files.start_readers(settings);
  }

  runtime::Checkpoint checkpoint;
  runtime::WeightFiles files;
};

// A way to read, with faults that must not change what is read.
struct ReadingFaults {
  const char* name = "";  // letters
  Faults faults;
  bool direct = true;
};

// All ways, for a test that has them as its parameter.
[[nodiscard]] std::vector<ReadingFaults> reading_faults();

// Moves the tensors of a safetensors file `bytes` bytes further, by blanks behind its header.
void shift_tensors(const std::filesystem::path& file, std::size_t bytes);

// The bytes of a BF16 or F32 matrix with dense rows.
[[nodiscard]] std::span<const std::byte> dense_bytes(const MatrixView& view);

// The bytes of a tensor, read through the real file system.
[[nodiscard]] std::string tensor_bytes(const runtime::Checkpoint& checkpoint,
                                       const runtime::TensorExtent& extent);

}  // namespace k3::test

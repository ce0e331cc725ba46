// The files that weights are read from while the model runs, and the threads that read them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/window_file.h"
#include "runtime/checkpoint.h"
#include "runtime/reader_pool.h"

namespace k3::runtime {

struct ReadSettings {
  std::size_t readers = 4;                            // threads for each device
  std::size_t request_bytes = std::size_t{4} << 20U;  // longer reads are shared by the readers
};

// A file and the readers of its device.
struct WeightFile {
  std::unique_ptr<io::WindowFile> file;
  ReaderPool* pool = nullptr;  // null until the readers start
};

// Consecutive bytes of a file.
struct FileRange {
  const WeightFile* source = nullptr;
  std::uint64_t offset = 0;
  std::size_t bytes = 0;

  [[nodiscard]] io::Window window() const { return source->file->window_of(offset, bytes); }
};

// Every shard with a bound tensor and, where there is one, the packed trunk.
class WeightFiles {
 public:
  // `trunk` is the packed trunk's data file. Throws Error(kIo; kUserFile for the trunk).
  WeightFiles(io::FileSystem& file_system,
              const Checkpoint& checkpoint,
              const std::optional<std::filesystem::path>& trunk,
              bool direct);

  // Before the first read.
  void start_readers(const ReadSettings& settings);

  [[nodiscard]] FileRange in_shard(std::uint32_t shard,
                                   std::uint64_t offset,
                                   std::size_t bytes) const;
  [[nodiscard]] FileRange in_trunk(std::uint64_t offset, std::size_t bytes) const;

  // What memory for windows of any of the files is aligned to.
  [[nodiscard]] std::size_t alignment() const { return alignment_; }

  // Memory for the window of a range, in multiples of alignment(), so that windows of any files may
  // follow each other.
  [[nodiscard]] std::size_t memory_of(const FileRange& range) const {
    return (range.window().bytes + alignment_ - 1) / alignment_ * alignment_;
  }

  [[nodiscard]] std::size_t request_bytes() const { return settings_.request_bytes; }

  [[nodiscard]] const ReadSettings& settings() const { return settings_; }

  [[nodiscard]] ReaderPools& pools() const { return *pools_; }

  // Every file is read past the page cache.
  [[nodiscard]] bool all_direct() const;

  // What there is to say of files that are read through the page cache; each file once.
  [[nodiscard]] std::vector<std::string> take_notices();

  // The files by size, largest first: to measure their device with.
  [[nodiscard]] std::vector<std::filesystem::path> largest_files(std::size_t count) const;

 private:
  [[nodiscard]] static FileRange range(const WeightFile& source,
                                       std::uint64_t offset,
                                       std::size_t bytes);

  ReadSettings settings_;
  std::vector<WeightFile> sources_;  // [shard], then the trunk; no file without a bound tensor
  bool has_trunk_ = false;
  std::size_t alignment_ = 1;
  std::unique_ptr<ReaderPools> pools_;  // ends before the files
};

}  // namespace k3::runtime

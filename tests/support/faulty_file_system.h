// A file system that misbehaves on purpose.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "io/file.h"

namespace k3::test {

// What the reads of every file opened through it suffer.
struct Faults {
  std::size_t max_read_bytes = SIZE_MAX;  // short counts
  int interruptions_per_read = 0;         // EINTR before each successful read
  std::optional<std::uint64_t> eio_from_byte =
      std::nullopt;  // a read that touches this byte or a later one
  std::optional<std::uint64_t> file_ends_at =
      std::nullopt;            // reads find the end here; size() still lies
  bool refuse_direct = false;  // O_DIRECT fails with EINVAL
};

// The real file system with faults. Not for several threads.
class FaultyFileSystem final : public io::FileSystem {
 public:
  explicit FaultyFileSystem(const Faults& faults) : faults_(faults) {}

  io::OpenResult open(const std::filesystem::path& path, io::Caching caching) override;

  io::ListResult list(const std::filesystem::path& directory) override {
    return io::posix_file_system().list(directory);
  }

  [[nodiscard]] int reads() const { return reads_; }

  [[nodiscard]] std::uint64_t bytes_read() const { return bytes_read_; }

 private:
  class FaultyFile;

  Faults faults_;
  int reads_ = 0;
  std::uint64_t bytes_read_ = 0;
};

}  // namespace k3::test

// A large file written past the page cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace k3::tools {

// Throws k3::Error(kIo) naming the file and the reason, here and below.
class OutputFile {
 public:
  // Opens or creates the file; what is in it stays.
  explicit OutputFile(std::filesystem::path path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  OutputFile(OutputFile&&) = delete;
  OutputFile& operator=(OutputFile&&) = delete;

  // Makes the file `bytes` long and reserves the space, where the file system can: a disk that is too
  // full, or a quota, shows before anything is written.
  void reserve(std::uint64_t bytes);

  // `offset`, size and address of `bytes` are multiples of 4096 for direct I/O; where the file system
  // refuses that, the write goes through the page cache, which is told to forget it.
  void write(std::uint64_t offset, std::span<const std::byte> bytes);

  // Returns when the device has everything.
  void sync();

  [[nodiscard]] bool direct() const { return direct_ >= 0; }

  // Bytes of disk that the file occupies.
  [[nodiscard]] std::uint64_t occupied() const;

 private:
  void forget_written(std::uint64_t offset, std::size_t bytes) const;

  std::filesystem::path path_;
  int buffered_ = -1;
  int direct_ = -1;  // -1: there is no direct I/O
};

// Writes a small file whole and waits until the device has it.
void write_synced(const std::filesystem::path& path, std::string_view text);

// Makes renames and removals in a directory durable.
void sync_directory(const std::filesystem::path& directory);

// rename() and sync_directory().
void rename_synced(const std::filesystem::path& from, const std::filesystem::path& to);

// Throws k3::Error(kIo): "<path>: <what>: <reason of errno>".
[[noreturn]] void fail_with_errno(const std::filesystem::path& path, const std::string& what);

}  // namespace k3::tools

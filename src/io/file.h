// The door to the operating system for everything that reads files.
//
// File and FileSystem are small on purpose: a test replaces them to inject short counts, EINTR, EIO
// or a file system that refuses direct I/O. They report errno values and never throw for a failing
// system call; read_exact(), open_file() and read_whole() turn failures into errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "k3/errors.h"

namespace k3::io {

// What one read brought. bytes == 0 without an error is the end of the file.
struct ReadResult {
  std::size_t bytes = 0;
  int error = 0;  // errno; 0 for success
};

// An open file, read at positions. Reads may come from several threads at once.
class File {
 public:
  File() = default;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  File(File&&) = delete;
  File& operator=(File&&) = delete;
  virtual ~File() = default;

  // One attempt: may bring fewer bytes than asked, and EINTR is the caller's to retry. A direct
  // file wants `offset`, the address and the size of `out` aligned to the file system's block.
  [[nodiscard]] virtual ReadResult read_some(std::uint64_t offset,
                                             std::span<std::byte> out) noexcept = 0;

  // Bytes of the file when it was opened.
  [[nodiscard]] virtual std::uint64_t size() const noexcept = 0;

  [[nodiscard]] virtual const std::filesystem::path& path() const noexcept = 0;

  // What a direct read of this file must be aligned to: its offset, its size and the address of its
  // memory. A power of two; the file system is asked when the file is opened.
  [[nodiscard]] virtual std::size_t alignment() const noexcept { return kDefaultAlignment; }

  // The device that holds the file (st_dev).
  [[nodiscard]] virtual std::uint64_t device() const noexcept { return 0; }

  // Asks the system to forget what it cached of the file, so that the next buffered read comes from
  // the device. A hint: nothing depends on it but measurements.
  virtual void drop_cached() noexcept {}

  // Where the system cannot tell: every direct I/O of Linux takes pages.
  static constexpr std::size_t kDefaultAlignment = 4096;
};

enum class Caching : std::uint8_t {
  kBuffered,
  kDirect,  // O_DIRECT: bypasses the page cache; a file system may refuse it with EINVAL
};

struct OpenResult {
  std::unique_ptr<File> file;  // null when `error` is set
  int error = 0;               // errno; EISDIR for a directory, ENOTSUP for no regular file
};

struct ListResult {
  std::vector<std::string> names;  // in no order, without "." and ".."
  int error = 0;                   // errno; 0 for success
};

class FileSystem {
 public:
  FileSystem() = default;
  FileSystem(const FileSystem&) = delete;
  FileSystem& operator=(const FileSystem&) = delete;
  FileSystem(FileSystem&&) = delete;
  FileSystem& operator=(FileSystem&&) = delete;
  virtual ~FileSystem() = default;

  // Opens a regular file for reading (links are followed).
  [[nodiscard]] virtual OpenResult open(const std::filesystem::path& path, Caching caching) = 0;

  // Names of the entries of a directory.
  [[nodiscard]] virtual ListResult list(const std::filesystem::path& directory) = 0;
};

// The real one.
[[nodiscard]] FileSystem& posix_file_system() noexcept;

// Opens for buffered reading; throws Error(kind) naming the file and the reason.
[[nodiscard]] std::unique_ptr<File> open_file(FileSystem& file_system,
                                              const std::filesystem::path& path,
                                              ErrorKind kind);

// Fills `out` from `offset`: retries EINTR and short counts. Throws Error(kind) naming the file, the
// offset, the bytes expected and got, when the file ends too early or a read fails. For buffered
// files: after a short count it goes on at an offset that a direct file may refuse.
void read_exact(File& file,
                std::uint64_t offset,
                std::span<std::byte> out,
                ErrorKind kind = ErrorKind::kIo);

// A whole file of at most `max_bytes`; throws Error(kind) when it is larger or cannot be read.
[[nodiscard]] std::string read_whole(FileSystem& file_system,
                                     const std::filesystem::path& path,
                                     std::uint64_t max_bytes,
                                     ErrorKind kind);

// "Input/output error (errno 5)".
[[nodiscard]] std::string errno_text(int error);

}  // namespace k3::io

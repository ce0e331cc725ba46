// Positional reads past the page cache.
//
// Direct I/O takes whole blocks: offset, size and memory address are multiples of the file's
// alignment. A payload of any size at any offset is therefore read as a window: the aligned range
// around it. Where the file system refuses direct I/O, at open or at a read, the file is read through
// the page cache instead; windows and results stay the same, so that nobody else has to know.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "k3/errors.h"

#include "io/file.h"

namespace k3::io {

// The aligned range of a file around a payload. It may reach beyond the end of the file.
struct Window {
  std::uint64_t begin = 0;  // offset in the file
  std::size_t bytes = 0;
  std::size_t skip = 0;  // bytes before the payload
};

// `alignment` is a power of two, here and below.
[[nodiscard]] constexpr Window aligned_window(std::uint64_t offset,
                                              std::size_t bytes,
                                              std::size_t alignment) noexcept {
  const auto skip = static_cast<std::size_t>(offset & (alignment - 1));
  return {.begin = offset - skip,
          .bytes = bytes == 0 ? 0 : (skip + bytes + alignment - 1) & ~(alignment - 1),
          .skip = skip};
}

// The most bytes that the window of a payload of `bytes` can have, wherever it lies.
[[nodiscard]] constexpr std::size_t aligned_capacity(std::size_t bytes,
                                                     std::size_t alignment) noexcept {
  return aligned_window(alignment - 1, bytes, alignment).bytes;
}

struct WindowFileOptions {
  bool direct = true;  // false: through the page cache from the start, which is no fallback
  std::size_t max_request_bytes = std::size_t{1} << 30U;  // longer reads are split
};

// What one WindowFile::read() did.
struct WindowRead {
  std::byte* payload = nullptr;  // in the buffer of the caller
  std::uint64_t read_bytes = 0;  // that the system delivered: payload and the window around it
};

// An open file. All members may be called from several threads at once.
class WindowFile {
 public:
  // Throws Error(kind) naming the file and the reason when it cannot be opened. `file_system` must
  // outlive the file.
  WindowFile(FileSystem& file_system,
             const std::filesystem::path& path,
             ErrorKind kind = ErrorKind::kIo,
             const WindowFileOptions& options = {});

  [[nodiscard]] Window window_of(std::uint64_t offset, std::size_t bytes) const noexcept {
    return aligned_window(offset, bytes, alignment_);
  }

  [[nodiscard]] std::size_t window_capacity(std::size_t bytes) const noexcept {
    return aligned_capacity(bytes, alignment_);
  }

  // Reads the payload [offset, offset + bytes) into `buffer`, which begins at a multiple of
  // alignment() and holds window_of(offset, bytes).bytes; otherwise std::invalid_argument. Retries
  // EINTR, goes on after short counts. The payload lies at window_of().skip in the buffer; what
  // surrounds it is undefined. Throws Error(kind) naming file, offset, bytes expected and found when
  // the payload is not complete.
  WindowRead read(std::uint64_t offset,
                  std::size_t bytes,
                  std::span<std::byte> buffer,
                  ErrorKind kind = ErrorKind::kIo);

  // What windows are aligned to; the same before and after a fallback.
  [[nodiscard]] std::size_t alignment() const noexcept { return alignment_; }

  // Bytes of the file when it was opened.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }

  [[nodiscard]] std::uint64_t device() const noexcept { return device_; }

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

  // Reads bypass the page cache.
  [[nodiscard]] bool direct() const noexcept { return !buffered_ready_.load(); }

  // Why the file is read through the page cache although direct I/O was asked for; else empty.
  [[nodiscard]] std::string fallback_reason() const;

  // fallback_reason() with the file's name the first time it is called after the fallback, then
  // nothing: for a report that says it once per file.
  [[nodiscard]] std::optional<std::string> take_fallback_notice();

  // Asks the system to forget the file's cached pages: see File::drop_cached.
  void drop_cached() noexcept;

 private:
  struct Progress;

  bool read_direct(Progress& progress);
  void read_buffered(Progress& progress);
  void fall_back(const std::string& reason, ErrorKind kind);

  FileSystem& file_system_;
  std::filesystem::path path_;
  std::size_t max_request_bytes_;
  std::size_t alignment_ = File::kDefaultAlignment;
  std::uint64_t size_ = 0;
  std::uint64_t device_ = 0;
  std::unique_ptr<File> direct_;    // null when never opened; kept after a fallback for its readers
  std::unique_ptr<File> buffered_;  // set once, before buffered_ready_
  std::atomic<bool> buffered_ready_ = false;
  mutable std::mutex fallback_mutex_;  // guards the two below and the making of buffered_
  std::string fallback_reason_;
  bool notice_taken_ = false;
};

}  // namespace k3::io

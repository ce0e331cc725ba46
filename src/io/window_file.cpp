#include "io/window_file.h"

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <utility>

namespace k3::io {
namespace {

constexpr std::size_t kMaxRequestBytes = std::size_t{1} << 30U;

// The errors with which a read says that the file system does no direct I/O.
bool refuses_direct(int error) {
  return error == EINVAL || error == EOPNOTSUPP;
}

}  // namespace

// One read: a window, how far it is filled, and what it is for.
struct WindowFile::Progress {
  std::uint64_t offset;  // of the payload in the file
  std::size_t bytes;     // of the payload
  Window window;
  std::span<std::byte> buffer;
  ErrorKind kind;
  std::size_t filled = 0;  // bytes of the window from its begin that are there
  std::uint64_t read_bytes = 0;

  [[nodiscard]] std::size_t payload_end() const { return window.skip + bytes; }

  [[nodiscard]] bool complete() const { return filled >= payload_end(); }

  [[noreturn]] void fail(const std::filesystem::path& path, const std::string& reason) const {
    const std::size_t found = std::clamp(filled, window.skip, payload_end()) - window.skip;
    throw Error(
        kind, ErrorDetail{.what = "read at offset " + std::to_string(offset) + " failed: " + reason,
                          .where = path.string(),
                          .expected = std::to_string(bytes) + " bytes",
                          .found = std::to_string(found) + " bytes"});
  }
};

WindowFile::WindowFile(FileSystem& file_system,
                       const std::filesystem::path& path,
                       ErrorKind kind,
                       const WindowFileOptions& options)
    : file_system_(file_system),
      path_(path),
      max_request_bytes_(std::min(options.max_request_bytes, kMaxRequestBytes)) {
  std::string refusal;
  if (options.direct) {
    OpenResult result = file_system.open(path, Caching::kDirect);
    if (result.file == nullptr) {
      refusal = "direct I/O refused at open: " + errno_text(result.error);
    }
    direct_ = std::move(result.file);
  }
  if (direct_ == nullptr) {
    fall_back(refusal, kind);
  }
  const File& file = direct_ != nullptr ? *direct_ : *buffered_;
  alignment_ = file.alignment();
  size_ = file.size();
  device_ = file.device();
  max_request_bytes_ = std::max(max_request_bytes_ / alignment_, std::size_t{1}) * alignment_;
}

void WindowFile::fall_back(const std::string& reason, ErrorKind kind) {
  const std::lock_guard lock(fallback_mutex_);
  if (buffered_ != nullptr) {
    return;  // another thread was first
  }
  buffered_ = open_file(file_system_, path_, kind);
  fallback_reason_ = reason;
  buffered_ready_.store(true);
}

std::string WindowFile::fallback_reason() const {
  const std::lock_guard lock(fallback_mutex_);
  return fallback_reason_;
}

std::optional<std::string> WindowFile::take_fallback_notice() {
  const std::lock_guard lock(fallback_mutex_);
  if (fallback_reason_.empty() || std::exchange(notice_taken_, true)) {
    return std::nullopt;
  }
  return path_.string() + ": read through the page cache: " + fallback_reason_;
}

void WindowFile::drop_cached() noexcept {
  (buffered_ready_.load() ? *buffered_ : *direct_).drop_cached();
}

WindowRead WindowFile::read(std::uint64_t offset,
                            std::size_t bytes,
                            std::span<std::byte> buffer,
                            ErrorKind kind) {
  Progress progress{.offset = offset,
                    .bytes = bytes,
                    .window = window_of(offset, bytes),
                    .buffer = buffer,
                    .kind = kind};
  if (offset > size_ || bytes > size_ - offset) {
    const std::uint64_t there = size_ - std::min(offset, size_);
    progress.filled = progress.window.skip + static_cast<std::size_t>(there);
    progress.fail(path_, "end of file");
  }
  if (buffer.size() < progress.window.bytes ||
      reinterpret_cast<std::uintptr_t>(buffer.data()) % alignment_ != 0) {
    throw std::invalid_argument("a read window wants aligned memory of its own size");
  }
  if (bytes != 0 && (!direct() || !read_direct(progress))) {
    read_buffered(progress);
  }
  return {.payload = buffer.data() + progress.window.skip, .read_bytes = progress.read_bytes};
}

// Whole aligned requests. False when the rest of the payload is to be read through the page cache.
bool WindowFile::read_direct(Progress& progress) {
  const Window& window = progress.window;
  std::size_t position = 0;  // aligned, at most `filled`
  while (!progress.complete()) {
    const std::size_t wanted = std::min(window.bytes - position, max_request_bytes_);
    const ReadResult result =
        direct_->read_some(window.begin + position, progress.buffer.subspan(position, wanted));
    if (result.error == EINTR) {
      continue;
    }
    if (refuses_direct(result.error)) {
      fall_back("direct I/O refused at a read: " + errno_text(result.error), progress.kind);
      return false;
    }
    if (result.error != 0) {
      progress.fail(path_, errno_text(result.error));
    }
    progress.read_bytes += result.bytes;
    const std::size_t reached = position + result.bytes;
    if (reached <= progress.filled) {
      // The end of a file that was longer when it was opened, or counts below a block: a reader
      // that wants no alignment finds out which.
      fall_back("direct reads stop at byte " + std::to_string(window.begin + progress.filled),
                progress.kind);
      return false;
    }
    progress.filled = reached;
    position = reached & ~(alignment_ - 1);
  }
  return true;
}

// The missing part of the payload alone: no window is needed.
void WindowFile::read_buffered(Progress& progress) {
  const std::size_t end = progress.payload_end();
  progress.filled = std::max(progress.filled, progress.window.skip);
  while (!progress.complete()) {
    const std::size_t wanted = std::min(end - progress.filled, max_request_bytes_);
    const ReadResult result = buffered_->read_some(
        progress.window.begin + progress.filled, progress.buffer.subspan(progress.filled, wanted));
    if (result.error == EINTR) {
      continue;
    }
    if (result.error != 0 || result.bytes == 0) {
      progress.fail(path_, result.error != 0 ? errno_text(result.error) : "end of file");
    }
    progress.read_bytes += result.bytes;
    progress.filled += result.bytes;
  }
}

}  // namespace k3::io

#include "output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "k3/errors.h"

#include "io/file.h"

namespace k3::tools {
namespace {

constexpr mode_t kMode = 0666;  // less the umask

int open_retrying(const std::filesystem::path& path, int flags) {
  int descriptor = -1;
  do {
    descriptor = ::open(path.c_str(), flags | O_CLOEXEC, kMode);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

// Writes all of it; the errno of the failure, or 0. `done` says how far it came.
int write_all(int descriptor,
              std::uint64_t offset,
              std::span<const std::byte> bytes,
              std::size_t& done) {
  while (done < bytes.size()) {
    const ssize_t count = ::pwrite(descriptor, bytes.data() + done, bytes.size() - done,
                                   static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      return count < 0 ? errno : ENOSPC;
    }
    done += static_cast<std::size_t>(count);
  }
  return 0;
}

}  // namespace

void fail_with_errno(const std::filesystem::path& path, const std::string& what) {
  throw Error(ErrorKind::kIo, path.string() + ": " + what + ": " + io::errno_text(errno));
}

OutputFile::OutputFile(std::filesystem::path path) : path_(std::move(path)) {
  // Not through a link: what it points to is not ours.
  buffered_ = open_retrying(path_, O_RDWR | O_CREAT | O_NOFOLLOW);
  if (buffered_ < 0) {
    fail_with_errno(path_, "cannot be written");
  }
  direct_ = open_retrying(path_, O_WRONLY | O_DIRECT | O_NOFOLLOW);
}

OutputFile::~OutputFile() {
  ::close(buffered_);
  if (direct_ >= 0) {
    ::close(direct_);
  }
}

void OutputFile::reserve(std::uint64_t bytes) {
  if (::ftruncate(buffered_, static_cast<off_t>(bytes)) != 0) {
    fail_with_errno(path_, "cannot be made " + std::to_string(bytes) + " bytes long");
  }
  int result = 0;
  do {
    result = bytes == 0 ? 0 : ::fallocate(buffered_, 0, 0, static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  if (result != 0 && errno != EOPNOTSUPP && errno != ENOSYS) {
    fail_with_errno(path_, std::to_string(bytes) + " bytes cannot be reserved");
  }
}

void OutputFile::write(std::uint64_t offset, std::span<const std::byte> bytes) {
  std::size_t done = 0;
  if (direct_ >= 0) {
    const int fault = write_all(direct_, offset, bytes, done);
    if (fault == 0) {
      return;
    }
    if (fault != EINVAL && fault != EOPNOTSUPP) {
      errno = fault;
      fail_with_errno(path_, "writing at offset " + std::to_string(offset + done) + " failed");
    }
    ::close(std::exchange(direct_, -1));
  }
  const int fault = write_all(buffered_, offset, bytes, done);
  if (fault != 0) {
    errno = fault;
    fail_with_errno(path_, "writing at offset " + std::to_string(offset + done) + " failed");
  }
  forget_written(offset, bytes.size());
}

// Pages can be dropped only when they are clean.
void OutputFile::forget_written(std::uint64_t offset, std::size_t bytes) const {
  constexpr unsigned kNow =
      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  const auto begin = static_cast<off_t>(offset);
  const auto length = static_cast<off_t>(bytes);
  if (::sync_file_range(buffered_, begin, length, kNow) != 0 && errno != ESPIPE &&
      errno != ENOSYS && errno != EINVAL) {
    fail_with_errno(path_, "writing at offset " + std::to_string(offset) + " failed");
  }
  static_cast<void>(::posix_fadvise(buffered_, begin, length, POSIX_FADV_DONTNEED));
}

void OutputFile::sync() {
  if (::fsync(buffered_) != 0) {
    fail_with_errno(path_, "the device did not take it");
  }
}

std::uint64_t OutputFile::occupied() const {
  struct stat facts = {};
  return ::fstat(buffered_, &facts) == 0 ? static_cast<std::uint64_t>(facts.st_blocks) * 512U : 0;
}

void write_synced(const std::filesystem::path& path, std::string_view text) {
  const int descriptor = open_retrying(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW);
  if (descriptor < 0) {
    fail_with_errno(path, "cannot be written");
  }
  std::size_t done = 0;
  int fault = write_all(descriptor, 0, std::as_bytes(std::span(text)), done);
  if (fault == 0 && ::fsync(descriptor) != 0) {
    fault = errno;
  }
  ::close(descriptor);
  if (fault != 0) {
    errno = fault;
    fail_with_errno(path, "cannot be written");
  }
}

void sync_directory(const std::filesystem::path& directory) {
  const int descriptor = open_retrying(directory, O_RDONLY | O_DIRECTORY);
  // Some network file systems sync no directory; their renames are durable or nothing helps.
  const bool synced =
      descriptor >= 0 && (::fsync(descriptor) == 0 || errno == EINVAL || errno == EROFS);
  const int fault = errno;
  if (descriptor >= 0) {
    ::close(descriptor);
  }
  if (!synced) {
    errno = fault;
    fail_with_errno(directory, "cannot be synced");
  }
}

void rename_synced(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    fail_with_errno(from, "cannot be renamed to " + to.string());
  }
  sync_directory(to.parent_path().empty() ? "." : to.parent_path());
}

}  // namespace k3::tools

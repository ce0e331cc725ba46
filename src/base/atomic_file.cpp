#include "k3/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <system_error>
#include <utility>

namespace k3 {
namespace {

[[noreturn]] void fail(ErrorKind kind, const std::filesystem::path& path, int error) {
  throw Error(kind, {.what = "cannot be written",
                     .where = path.string(),
                     .found = std::generic_category().message(error)});
}

// The file that a chain of links ends at; the path itself when it does not exist yet.
std::filesystem::path resolve_links(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::path resolved = std::filesystem::weakly_canonical(path, error);
  return error ? path : resolved;
}

// The permissions that a file created in the ordinary way would get.
mode_t default_mode() {
  const mode_t mask = umask(0);
  umask(mask);
  return 0666 & ~mask;
}

}  // namespace

AtomicFile::AtomicFile(const std::filesystem::path& destination)
    : destination_(resolve_links(destination)) {
  struct stat facts = {};
  const bool exists = stat(destination_.c_str(), &facts) == 0;
  if (exists && S_ISDIR(facts.st_mode)) {
    fail(ErrorKind::kUsage, destination, EISDIR);
  }
  if (exists && access(destination_.c_str(), W_OK) != 0) {
    fail(ErrorKind::kUsage, destination, errno);
  }
  if (exists && !S_ISREG(facts.st_mode)) {
    descriptor_ = open(destination_.c_str(), O_WRONLY | O_CLOEXEC);
    if (descriptor_ < 0) {
      fail(ErrorKind::kUsage, destination, errno);
    }
    return;
  }
  std::string name = destination_.string() + ".tmp-XXXXXX";
  descriptor_ = mkostemp(name.data(), O_CLOEXEC);
  if (descriptor_ < 0) {
    fail(ErrorKind::kUsage, destination, errno);
  }
  temporary_ = name;
  fchmod(descriptor_, exists ? facts.st_mode & 07777 : default_mode());
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : destination_(std::move(other.destination_)),
      temporary_(std::exchange(other.temporary_, {})),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) {
    close(descriptor_);
    if (!temporary_.empty()) {
      unlink(temporary_.c_str());
    }
  }
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      fail(ErrorKind::kIo, destination_, errno);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void AtomicFile::write(std::string_view text) {
  write(std::as_bytes(std::span(text.data(), text.size())));
}

void AtomicFile::commit() {
  const bool direct = temporary_.empty();
  if (!direct && fsync(descriptor_) != 0) {
    fail(ErrorKind::kIo, destination_, errno);
  }
  if (close(std::exchange(descriptor_, -1)) != 0) {
    const int error = errno;
    if (!direct) {
      unlink(temporary_.c_str());
    }
    fail(ErrorKind::kIo, destination_, error);
  }
  if (!direct && rename(temporary_.c_str(), destination_.c_str()) != 0) {
    const int error = errno;
    unlink(temporary_.c_str());
    fail(ErrorKind::kIo, destination_, error);
  }
}

}  // namespace k3

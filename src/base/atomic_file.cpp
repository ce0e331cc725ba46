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

// The file that a chain of links ends at, whether it exists or not.
std::filesystem::path resolve_links(std::filesystem::path path) {
  constexpr int kMostLinks = 40;
  std::error_code error;
  for (int i = 0; i < kMostLinks && std::filesystem::is_symlink(path, error); ++i) {
    path = path.parent_path() / std::filesystem::read_symlink(path, error);
  }
  return path;
}

// A file without a name in the folder of `destination`: nothing is left of it however the process
// ends. -1 where the file system has none.
int open_nameless(const std::filesystem::path& destination) {
  const std::filesystem::path folder =
      destination.has_parent_path() ? destination.parent_path() : ".";
  return open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
}

// Gives a nameless file a temporary name beside `destination`; empty when that fails.
std::string name_file(int descriptor, const std::filesystem::path& destination) {
  const std::string own = "/proc/self/fd/" + std::to_string(descriptor);
  const std::string name =
      destination.string() + ".tmp-" + std::to_string(getpid()) + "-" + std::to_string(descriptor);
  unlink(name.c_str());
  const int result = linkat(AT_FDCWD, own.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW);
  return result == 0 ? name : std::string();
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
  if (destination.empty()) {
    throw Error(ErrorKind::kUsage, "an output file needs a name: the name given is empty");
  }
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
  descriptor_ = open_nameless(destination_);
  if (descriptor_ < 0) {
    std::string name = destination_.string() + ".tmp-XXXXXX";
    descriptor_ = mkostemp(name.data(), O_CLOEXEC);
    if (descriptor_ < 0) {
      fail(ErrorKind::kUsage, destination, errno);
    }
    temporary_ = name;
  }
  direct_ = false;
  fchmod(descriptor_, exists ? facts.st_mode & 07777 : default_mode());
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : destination_(std::move(other.destination_)),
      temporary_(std::exchange(other.temporary_, {})),
      direct_(other.direct_),
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
  if (direct_) {
    if (close(std::exchange(descriptor_, -1)) != 0) {
      fail(ErrorKind::kIo, destination_, errno);
    }
    return;
  }
  if (fsync(descriptor_) != 0) {
    fail(ErrorKind::kIo, destination_, errno);
  }
  if (temporary_.empty()) {
    temporary_ = name_file(descriptor_, destination_);
  }
  if (temporary_.empty() || rename(temporary_.c_str(), destination_.c_str()) != 0) {
    fail(ErrorKind::kIo, destination_, errno);  // the destructor removes the temporary
  }
  temporary_.clear();
  close(std::exchange(descriptor_, -1));
}

}  // namespace k3

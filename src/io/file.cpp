#include "io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <limits>
#include <system_error>
#include <utility>

#include <dirent.h>

namespace k3::io {
namespace {

static_assert(sizeof(off_t) == 8, "file offsets have 64 bits");

constexpr std::size_t kMaxReadBytes = std::size_t{1} << 30U;  // the kernel stops short of 2 GiB

// What direct reads of an open file want: statx says it for the file where kernel and file system
// know, else the block of the file system is enough, else a page. 0: there is no direct I/O for it.
std::size_t direct_alignment(int descriptor) {
#if defined(STATX_DIOALIGN)
  struct statx facts = {};
  if (::statx(descriptor, "", AT_EMPTY_PATH, STATX_DIOALIGN, &facts) == 0 &&
      (facts.stx_mask & STATX_DIOALIGN) != 0) {
    const std::size_t wanted = std::max(facts.stx_dio_mem_align, facts.stx_dio_offset_align);
    return facts.stx_dio_offset_align == 0 || std::has_single_bit(wanted) ? wanted : 0;
  }
#endif
  // A network file system may name its transfer size instead of a block: a page will do there.
  constexpr std::size_t kMaxBlock = std::size_t{64} << 10U;
  struct statfs system = {};
  if (::fstatfs(descriptor, &system) == 0 && system.f_bsize > 0) {
    const auto block = static_cast<std::size_t>(system.f_bsize);
    if (std::has_single_bit(block) && block <= kMaxBlock) {
      return block;
    }
  }
  return File::kDefaultAlignment;
}

struct FileFacts {
  std::uint64_t size = 0;
  std::uint64_t device = 0;
  std::size_t alignment = File::kDefaultAlignment;
};

class PosixFile final : public File {
 public:
  PosixFile(int descriptor, const FileFacts& facts, std::filesystem::path path)
      : descriptor_(descriptor), facts_(facts), path_(std::move(path)) {}

  ~PosixFile() override { ::close(descriptor_); }

  PosixFile(const PosixFile&) = delete;
  PosixFile& operator=(const PosixFile&) = delete;
  PosixFile(PosixFile&&) = delete;
  PosixFile& operator=(PosixFile&&) = delete;

  ReadResult read_some(std::uint64_t offset, std::span<std::byte> out) noexcept override {
    if (offset > static_cast<std::uint64_t>(std::numeric_limits<off_t>::max())) {
      return {.bytes = 0, .error = EOVERFLOW};
    }
    const std::size_t wanted = std::min(out.size(), kMaxReadBytes);
    const ssize_t got = ::pread(descriptor_, out.data(), wanted, static_cast<off_t>(offset));
    if (got < 0) {
      return {.bytes = 0, .error = errno};
    }
    return {.bytes = static_cast<std::size_t>(got), .error = 0};
  }

  [[nodiscard]] std::uint64_t size() const noexcept override { return facts_.size; }

  [[nodiscard]] const std::filesystem::path& path() const noexcept override { return path_; }

  [[nodiscard]] std::size_t alignment() const noexcept override { return facts_.alignment; }

  [[nodiscard]] std::uint64_t device() const noexcept override { return facts_.device; }

  void drop_cached() noexcept override {
    static_cast<void>(::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_DONTNEED));
  }

 private:
  int descriptor_;
  FileFacts facts_;
  std::filesystem::path path_;
};

class PosixFileSystem final : public FileSystem {
 public:
  OpenResult open(const std::filesystem::path& path, Caching caching) override {
    // O_NONBLOCK: a pipe of that name must not hang the open; regular files ignore it.
    int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
    if (caching == Caching::kDirect) {
      flags |= O_DIRECT;
    }
    int descriptor = -1;
    do {
      descriptor = ::open(path.c_str(), flags);
    } while (descriptor < 0 && errno == EINTR);
    if (descriptor < 0) {
      return {.file = nullptr, .error = errno};
    }
    struct stat facts = {};
    int error = ::fstat(descriptor, &facts) == 0 ? 0 : errno;
    if (error == 0 && !S_ISREG(facts.st_mode)) {
      error = S_ISDIR(facts.st_mode) ? EISDIR : ENOTSUP;
    }
    const std::size_t alignment = direct_alignment(descriptor);
    if (error == 0 && caching == Caching::kDirect && alignment == 0) {
      error = EINVAL;  // it would open, and then read through the cache or not at all
    }
    if (error != 0) {
      ::close(descriptor);
      return {.file = nullptr, .error = error};
    }
    const FileFacts known{.size = static_cast<std::uint64_t>(facts.st_size),
                          .device = facts.st_dev,
                          .alignment = alignment == 0 ? File::kDefaultAlignment : alignment};
    return {.file = std::make_unique<PosixFile>(descriptor, known, path), .error = 0};
  }

  ListResult list(const std::filesystem::path& directory) override {
    ListResult result;
    DIR* const stream = ::opendir(directory.c_str());
    if (stream == nullptr) {
      result.error = errno;
      return result;
    }
    const std::unique_ptr<DIR, int (*)(DIR*)> closer(stream, &::closedir);
    errno = 0;
    // One stream per call: no other thread sees it.
    while (const dirent* const entry = ::readdir(stream)) {  // NOLINT(concurrency-mt-unsafe)
      const std::string name = entry->d_name;
      if (name != "." && name != "..") {
        result.names.push_back(name);
      }
      errno = 0;
    }
    result.error = errno;
    return result;
  }
};

}  // namespace

FileSystem& posix_file_system() noexcept {
  static PosixFileSystem file_system;
  return file_system;
}

std::string errno_text(int error) {
  return std::error_code(error, std::generic_category()).message() + " (errno " +
         std::to_string(error) + ")";
}

std::unique_ptr<File> open_file(FileSystem& file_system,
                                const std::filesystem::path& path,
                                ErrorKind kind) {
  OpenResult result = file_system.open(path, Caching::kBuffered);
  if (result.file == nullptr) {
    throw Error(kind, ErrorDetail{.what = "cannot open",
                                  .where = path.string(),
                                  .expected = "a readable file",
                                  .found = errno_text(result.error)});
  }
  return std::move(result.file);
}

void read_exact(File& file, std::uint64_t offset, std::span<std::byte> out, ErrorKind kind) {
  std::size_t done = 0;
  while (done < out.size()) {
    const ReadResult result = file.read_some(offset + done, out.subspan(done));
    if (result.error == EINTR) {
      continue;
    }
    if (result.error != 0 || result.bytes == 0) {
      const std::string reason = result.error != 0 ? errno_text(result.error) : "end of file";
      throw Error(kind, ErrorDetail{.what = "read at offset " + std::to_string(offset) +
                                            " failed: " + reason,
                                    .where = file.path().string(),
                                    .expected = std::to_string(out.size()) + " bytes",
                                    .found = std::to_string(done) + " bytes"});
    }
    done += result.bytes;
  }
}

std::string read_whole(FileSystem& file_system,
                       const std::filesystem::path& path,
                       std::uint64_t max_bytes,
                       ErrorKind kind) {
  const std::unique_ptr<File> file = open_file(file_system, path, kind);
  if (file->size() > max_bytes) {
    throw Error(kind, ErrorDetail{.what = "file too large",
                                  .where = path.string(),
                                  .expected = "at most " + std::to_string(max_bytes) + " bytes",
                                  .found = std::to_string(file->size()) + " bytes"});
  }
  std::string text(static_cast<std::size_t>(file->size()), '\0');
  read_exact(*file, 0, std::as_writable_bytes(std::span(text)), kind);
  return text;
}

}  // namespace k3::io

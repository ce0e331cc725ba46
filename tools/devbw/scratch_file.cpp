#include "scratch_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <system_error>
#include <vector>

#include "k3/errors.h"

#include "free_space.h"

namespace k3::tools {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{8} << 20U;

[[noreturn]] void fail(const std::filesystem::path& directory, const std::string& what) {
  throw Error(ErrorKind::kIo, directory.string() + ": " + what + ": " +
                                  std::error_code(errno, std::generic_category()).message());
}

void fill(int descriptor, std::uint64_t bytes, const std::filesystem::path& directory) {
  // Random, so that no device stores it in less.
  std::mt19937_64 random(1);
  std::vector<std::uint64_t> block(kBlockBytes / sizeof(std::uint64_t));
  while (bytes > 0) {
    std::generate(block.begin(), block.end(), std::ref(random));
    auto left = static_cast<std::size_t>(std::min<std::uint64_t>(bytes, kBlockBytes));
    bytes -= left;
    const char* from = reinterpret_cast<const char*>(block.data());
    while (left > 0) {
      const ssize_t written = ::write(descriptor, from, left);
      if (written < 0 && errno != EINTR) {
        fail(directory, "writing the scratch file failed");
      }
      from += std::max<ssize_t>(written, 0);
      left -= static_cast<std::size_t>(std::max<ssize_t>(written, 0));
    }
  }
}

}  // namespace

ScratchFile::ScratchFile(const std::filesystem::path& directory, std::uint64_t bytes) {
  require_free_space(directory, bytes, "a scratch file");
  std::string name = (directory / "k3-devbw-XXXXXX").string();
  descriptor_ = ::mkostemp(name.data(), O_CLOEXEC);
  if (descriptor_ < 0) {
    fail(directory, "cannot create a scratch file");
  }
  ::unlink(name.c_str());
  try {
    fill(descriptor_, bytes, directory);
    if (::fsync(descriptor_) != 0) {
      fail(directory, "writing the scratch file failed");
    }
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

ScratchFile::~ScratchFile() {
  ::close(descriptor_);
}

std::filesystem::path ScratchFile::path() const {
  return "/proc/self/fd/" + std::to_string(descriptor_);
}

}  // namespace k3::tools

#include "support/faulty_file_system.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace k3::test {

class FaultyFileSystem::FaultyFile final : public io::File {
 public:
  FaultyFile(FaultyFileSystem& owner, std::unique_ptr<io::File> file)
      : owner_(owner), file_(std::move(file)) {}

  io::ReadResult read_some(std::uint64_t offset, std::span<std::byte> out) noexcept override {
    const Faults& faults = owner_.faults_;
    ++owner_.reads_;
    if (interrupted_ < faults.interruptions_per_read) {
      ++interrupted_;
      return {.bytes = 0, .error = EINTR};
    }
    interrupted_ = 0;
    std::size_t size = std::min(out.size(), faults.max_read_bytes);
    if (faults.file_ends_at.has_value()) {
      const std::uint64_t left = *faults.file_ends_at - std::min(offset, *faults.file_ends_at);
      size = static_cast<std::size_t>(std::min<std::uint64_t>(size, left));
    }
    if (faults.eio_from_byte.has_value()) {
      if (offset >= *faults.eio_from_byte) {
        return {.bytes = 0, .error = EIO};
      }
      size =
          static_cast<std::size_t>(std::min<std::uint64_t>(size, *faults.eio_from_byte - offset));
    }
    const io::ReadResult result = file_->read_some(offset, out.first(size));
    owner_.bytes_read_ += result.bytes;
    return result;
  }

  [[nodiscard]] std::uint64_t size() const noexcept override { return file_->size(); }

  [[nodiscard]] const std::filesystem::path& path() const noexcept override {
    return file_->path();
  }

 private:
  FaultyFileSystem& owner_;
  std::unique_ptr<io::File> file_;
  int interrupted_ = 0;
};

io::OpenResult FaultyFileSystem::open(const std::filesystem::path& path, io::Caching caching) {
  if (caching == io::Caching::kDirect && faults_.refuse_direct) {
    return {.file = nullptr, .error = EINVAL};
  }
  io::OpenResult result = io::posix_file_system().open(path, caching);
  if (result.file != nullptr) {
    result.file = std::make_unique<FaultyFile>(*this, std::move(result.file));
  }
  return result;
}

}  // namespace k3::test

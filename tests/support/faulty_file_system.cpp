#include "support/faulty_file_system.h"

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>

namespace k3::test {

class FaultyFileSystem::FaultyFile final : public io::File {
 public:
  FaultyFile(FaultyFileSystem& owner,
             const Faults& faults,
             bool direct,
             std::unique_ptr<io::File> file)
      : owner_(owner), faults_(faults), direct_(direct), file_(std::move(file)) {}

  io::ReadResult read_some(std::uint64_t offset, std::span<std::byte> out) noexcept override {
    owner_.note_request(out.size(), direct_);
    owner_.wait_while_held(path());
    if (faults_.read_delay.count() > 0) {
      std::this_thread::sleep_for(faults_.read_delay);
    }
    if (direct_ && (faults_.refuse_direct_reads || !aligned(offset, out))) {
      return {.bytes = 0, .error = EINVAL};
    }
    const auto period = static_cast<unsigned>(faults_.interruptions_per_read) + 1;
    if (attempts_.fetch_add(1) % period != period - 1) {
      return {.bytes = 0, .error = EINTR};
    }
    if (faults_.eio_on_read.has_value() && ++owner_.successes_ == *faults_.eio_on_read) {
      return {.bytes = 0, .error = EIO};
    }
    std::size_t size = std::min(out.size(), faults_.max_read_bytes);
    if (faults_.file_ends_at.has_value()) {
      const std::uint64_t left = *faults_.file_ends_at - std::min(offset, *faults_.file_ends_at);
      size = static_cast<std::size_t>(std::min<std::uint64_t>(size, left));
    }
    if (faults_.eio_from_byte.has_value()) {
      if (offset >= *faults_.eio_from_byte) {
        return {.bytes = 0, .error = EIO};
      }
      size =
          static_cast<std::size_t>(std::min<std::uint64_t>(size, *faults_.eio_from_byte - offset));
    }
    const io::ReadResult result = file_->read_some(offset, out.first(size));
    owner_.bytes_read_ += result.bytes;
    return result;
  }

  [[nodiscard]] std::uint64_t size() const noexcept override { return file_->size(); }

  [[nodiscard]] const std::filesystem::path& path() const noexcept override {
    return file_->path();
  }

  [[nodiscard]] std::size_t alignment() const noexcept override { return faults_.alignment; }

  [[nodiscard]] std::uint64_t device() const noexcept override { return faults_.device; }

 private:
  [[nodiscard]] bool aligned(std::uint64_t offset, std::span<std::byte> out) const {
    return (offset | out.size() | reinterpret_cast<std::uintptr_t>(out.data())) %
               faults_.alignment ==
           0;
  }

  FaultyFileSystem& owner_;
  const Faults& faults_;
  bool direct_;
  std::unique_ptr<io::File> file_;
  std::atomic<unsigned> attempts_ = 0;
};

io::OpenResult FaultyFileSystem::open(const std::filesystem::path& path, io::Caching caching) {
  const Faults& faults = faults_of(path);
  const bool direct = caching == io::Caching::kDirect;
  if (direct && faults.refuse_direct) {
    return {.file = nullptr, .error = EINVAL};
  }
  if (opens_++ > 0 && !direct && faults.refuse_reopening) {
    return {.file = nullptr, .error = EMFILE};
  }
  io::OpenResult result = io::posix_file_system().open(path, io::Caching::kBuffered);
  if (result.file != nullptr) {
    result.file = std::make_unique<FaultyFile>(*this, faults, direct, std::move(result.file));
  }
  return result;
}

void FaultyFileSystem::add(const std::string& name, const Faults& faults) {
  others_.emplace_back(name, faults);
}

const Faults& FaultyFileSystem::faults_of(const std::filesystem::path& path) const {
  for (const auto& [name, faults] : others_) {
    if (path.string().find(name) != std::string::npos) {
      return faults;
    }
  }
  return faults_;
}

void FaultyFileSystem::hold(const std::string& name) {
  const std::lock_guard lock(hold_mutex_);
  held_name_ = name;
}

void FaultyFileSystem::wait_held(int count) {
  std::unique_lock lock(hold_mutex_);
  hold_changed_.wait(lock, [&] { return held_ >= count; });
}

void FaultyFileSystem::release() {
  const std::lock_guard lock(hold_mutex_);
  held_name_.clear();
  hold_changed_.notify_all();
}

void FaultyFileSystem::wait_while_held(const std::filesystem::path& path) {
  std::unique_lock lock(hold_mutex_);
  const auto free = [&] {
    return held_name_.empty() || path.string().find(held_name_) == std::string::npos;
  };
  if (!free()) {
    ++held_;
    hold_changed_.notify_all();
    hold_changed_.wait(lock, free);
    --held_;
  }
}

void FaultyFileSystem::note_request(std::size_t bytes, bool direct) {
  ++reads_;
  direct_reads_ += direct ? 1 : 0;
  std::size_t largest = largest_request_;
  while (largest < bytes && !largest_request_.compare_exchange_weak(largest, bytes)) {
  }
}

}  // namespace k3::test

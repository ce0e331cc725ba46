#include "runtime/read_group.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace k3::runtime {

void ReadGroup::Part::on_done(std::byte* /*payload*/, std::exception_ptr error) noexcept {
  group.finish_part(std::move(error));
}

void ReadGroup::reserve(std::size_t bytes, std::size_t ranges) {
  // A window that begins before its payload may need a request more.
  const std::size_t parts = bytes / request_bytes_ + 2 * ranges;
  while (parts_.size() < parts) {
    parts_.emplace_back(*this);
  }
}

ReadGroup::Part& ReadGroup::next_part() {
  if (used_ == parts_.size()) {
    parts_.emplace_back(*this);
  }
  return parts_[used_++];
}

std::byte* ReadGroup::add(const FileRange& range, std::span<std::byte> buffer) {
  const io::Window window = range.window();
  if (buffer.size() < window.bytes) {
    throw std::invalid_argument("a range is larger than its buffer");
  }
  const std::uint64_t end = range.offset + range.bytes;
  for (std::size_t position = 0; position < window.bytes; position += request_bytes_) {
    const std::size_t length = std::min(request_bytes_, window.bytes - position);
    const std::uint64_t begin = window.begin + position;
    const std::uint64_t first = std::max(begin, range.offset);
    Part& part = next_part();
    part.file = range.source->file.get();
    part.pool = range.source->pool;
    part.offset = first;
    part.bytes = static_cast<std::size_t>(std::min(begin + length, end) - first);
    part.buffer = buffer.subspan(position, length);
  }
  return buffer.data() + window.skip;
}

void ReadGroup::submit(ErrorKind kind, ReadPriority priority) noexcept {
  const std::size_t count = std::exchange(used_, 0);
  pending_.store(count);
  // Once the last part is submitted the group may be in use again.
  for (std::size_t i = 0; i < count; ++i) {
    Part& part = parts_[i];
    part.kind = kind;
    part.priority = priority;
    part.pool->submit(part);
  }
}

void ReadGroup::abandon() noexcept {
  for (Part& part : parts_) {
    if (part.pool != nullptr && part.pool->cancel(part)) {
      finish_part(
          std::make_exception_ptr(Error(ErrorKind::kInterrupted, "the read was taken back")));
    }
  }
}

void ReadGroup::finish_part(std::exception_ptr error) noexcept {
  if (error != nullptr) {
    const std::lock_guard lock(error_mutex_);
    if (error_ == nullptr) {
      error_ = std::move(error);
    }
  }
  if (pending_.fetch_sub(1) == 1) {
    // No other part is left: nobody else touches the error.
    listener_.on_complete(*this, std::exchange(error_, nullptr));
  }
}

}  // namespace k3::runtime

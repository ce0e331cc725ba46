// Memory between two pages that nobody may touch.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

namespace k3::test {

// Which end of the values touches the page that must not be read or written.
enum class Border {
  kBegin,
  kEnd
};

// `bytes` bytes, zero-filled, that begin or end on a page border; the pages before and behind theirs
// cannot be accessed.
class GuardedMemory {
 public:
  GuardedMemory(std::size_t bytes, Border border);
  ~GuardedMemory();
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  std::byte* mapping_;
  std::size_t mapped_bytes_;
  std::byte* data_;
};

template <typename T>
class GuardedBuffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  GuardedBuffer(std::size_t count, Border border) : memory_(count * sizeof(T), border) {}

  GuardedBuffer(std::span<const T> values, Border border) : memory_(values.size_bytes(), border) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      data()[i] = values[i];
    }
  }

  [[nodiscard]] T* data() const { return reinterpret_cast<T*>(memory_.data()); }

 private:
  GuardedMemory memory_;
};

}  // namespace k3::test

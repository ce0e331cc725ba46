// Owner of a block of elements on a cache-line border.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "k3/errors.h"

namespace k3 {

inline constexpr std::size_t kCacheLine = 64;  // bytes

// Zero-filled memory on a cache-line border; large blocks lie on huge pages where the system has
// some. Null when there is none left. Every page has been touched.
[[nodiscard]] void* allocate_zeroed(std::size_t bytes) noexcept;

// Takes what allocate_zeroed() gave, or null.
void free_aligned(void* memory) noexcept;

// Zero-filled on construction. Throws Error(kMemory) when the system has no memory left.
template <typename T>
class AlignedBuffer {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  AlignedBuffer() = default;

  explicit AlignedBuffer(std::size_t count) : data_(allocate(count)), size_(count) {}

  AlignedBuffer(AlignedBuffer&& other) noexcept
      : data_(std::move(other.data_)), size_(std::exchange(other.size_, 0)) {}

  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    data_ = std::move(other.data_);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }

  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;
  ~AlignedBuffer() = default;

  [[nodiscard]] T* data() noexcept { return data_.get(); }

  [[nodiscard]] const T* data() const noexcept { return data_.get(); }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }

  [[nodiscard]] std::span<T> span() noexcept { return {data_.get(), size_}; }

  [[nodiscard]] std::span<const T> span() const noexcept { return {data_.get(), size_}; }

 private:
  struct Free {
    void operator()(T* pointer) const noexcept { free_aligned(pointer); }
  };

  static T* allocate(std::size_t count) {
    if (count == 0) {
      return nullptr;
    }
    void* memory = nullptr;
    if (count <= static_cast<std::size_t>(-1) / sizeof(T)) {
      memory = allocate_zeroed(count * sizeof(T));
    }
    if (memory == nullptr) {
      throw Error(ErrorKind::kMemory, "out of memory: " + std::to_string(count) + " elements of " +
                                          std::to_string(sizeof(T)) +
                                          " bytes could not be allocated");
    }
    return static_cast<T*>(memory);
  }

  std::unique_ptr<T, Free> data_;
  std::size_t size_ = 0;
};

}  // namespace k3

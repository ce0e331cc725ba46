// Memory that a direct read can fill: aligned as the file system wants it.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "k3/errors.h"

namespace k3 {

// Owner of bytes that begin at a multiple of an alignment. Undefined content: pages that nobody has
// touched take no memory yet. Large blocks lie on huge pages where the system has some.
class WindowBuffer {
 public:
  WindowBuffer() = default;

  // `alignment` is a power of two. Throws Error(kMemory) when the system has no memory left.
  WindowBuffer(std::size_t bytes, std::size_t alignment)
      : data_(allocate(bytes, alignment)), size_(bytes) {}

  [[nodiscard]] std::span<std::byte> span() const noexcept { return {data_.get(), size_}; }

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept;
  };

  [[nodiscard]] static std::byte* allocate(std::size_t bytes, std::size_t alignment);

  std::unique_ptr<std::byte, Free> data_;
  std::size_t size_ = 0;
};

}  // namespace k3

// Memory that a direct read can fill: aligned as the file system wants it.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <string>

#include "k3/errors.h"

namespace k3 {

// Owner of bytes that begin at a multiple of an alignment. Undefined content. Throws Error(kMemory)
// when the system has no memory left.
class WindowBuffer {
 public:
  WindowBuffer() = default;

  // `alignment` is a power of two.
  WindowBuffer(std::size_t bytes, std::size_t alignment)
      : data_(allocate(bytes, alignment), Free{alignment}), size_(bytes) {}

  [[nodiscard]] std::span<std::byte> span() const noexcept { return {data_.get(), size_}; }

 private:
  struct Free {
    std::size_t alignment = 1;

    void operator()(std::byte* pointer) const noexcept {
      ::operator delete (pointer, std::align_val_t{alignment});
    }
  };

  static std::byte* allocate(std::size_t bytes, std::size_t alignment) {
    void* const memory = ::operator new (bytes, std::align_val_t{alignment}, std::nothrow);
    if (memory == nullptr) {
      throw Error(ErrorKind::kMemory,
                  "out of memory: " + std::to_string(bytes) + " bytes could not be allocated");
    }
    return static_cast<std::byte*>(memory);
  }

  std::unique_ptr<std::byte, Free> data_;
  std::size_t size_ = 0;
};

}  // namespace k3

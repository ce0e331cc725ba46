// Measures and carves scratch memory with one and the same function.
//
// A layout function takes everything it needs from a Carver. Run on a Carver without memory it
// measures (the pointers are null); run on one with memory it hands the pieces out.
#pragma once

#include <algorithm>
#include <cstddef>
#include <stdexcept>

#include "base/aligned_buffer.h"

namespace k3 {

class Carver {
 public:
  // Measures.
  Carver() = default;

  // Carves `memory`, which must outlive the pieces.
  explicit Carver(AlignedBuffer<std::byte>& memory) : base_(memory.data()), size_(memory.size()) {}

  // A piece of `count` elements on a cache-line border, uninitialised; null while measuring.
  template <typename T>
  [[nodiscard]] T* take(std::size_t count) {
    const std::size_t offset = used_;
    used_ += (count * sizeof(T) + kCacheLine - 1) / kCacheLine * kCacheLine;
    peak_ = std::max(peak_, used_);
    if (base_ == nullptr) {
      return nullptr;
    }
    if (used_ > size_) {
      throw std::logic_error("scratch memory was measured smaller than it is carved");
    }
    return reinterpret_cast<T*>(base_ + offset);
  }

  // What is taken after a mark can be handed out again after rewind(mark): pieces that are never
  // live together share memory.
  [[nodiscard]] std::size_t mark() const { return used_; }

  void rewind(std::size_t mark) { used_ = mark; }

  // Bytes that the layout needs.
  [[nodiscard]] std::size_t peak_bytes() const { return peak_; }

 private:
  std::byte* base_ = nullptr;
  std::size_t size_ = 0;
  std::size_t used_ = 0;
  std::size_t peak_ = 0;
};

}  // namespace k3

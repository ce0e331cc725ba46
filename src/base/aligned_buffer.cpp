#include "base/aligned_buffer.h"

#include <cstdlib>
#include <cstring>

#include "base/huge_pages.h"

namespace k3 {

void* allocate_zeroed(std::size_t bytes) noexcept {
  void* const memory = allocate_on_huge_pages(bytes, kCacheLine);
  if (memory != nullptr) {
    std::memset(memory, 0, bytes);
  }
  return memory;
}

void free_aligned(void* memory) noexcept {
  std::free(memory);
}

}  // namespace k3

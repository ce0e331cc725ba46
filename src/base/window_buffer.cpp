#include "base/window_buffer.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "base/huge_pages.h"

namespace k3 {

void WindowBuffer::Free::operator()(std::byte* memory) const noexcept {
  std::free(memory);
}

std::byte* WindowBuffer::allocate(std::size_t bytes, std::size_t alignment) {
  void* const memory =
      allocate_on_huge_pages(std::max(bytes, std::size_t{1}), std::max(alignment, sizeof(void*)));
  if (memory == nullptr) {
    throw Error(ErrorKind::kMemory,
                "out of memory: " + std::to_string(bytes) + " bytes could not be allocated");
  }
  return static_cast<std::byte*>(memory);
}

}  // namespace k3

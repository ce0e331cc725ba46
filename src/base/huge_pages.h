// Large blocks on huge pages: fewer page faults and fewer misses of the translation buffer.
#pragma once

#include <cstddef>

namespace k3 {

// Uninitialised memory at a multiple of `alignment` (a power of two, at least that of a pointer);
// blocks of a few huge pages and more lie on these where the system has some. Null when there is
// none left. Freed by std::free().
[[nodiscard]] void* allocate_on_huge_pages(std::size_t bytes, std::size_t alignment) noexcept;

}  // namespace k3

#include "base/huge_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

namespace k3 {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20U;
constexpr std::size_t kWorthHugePages = 2 * kHugePage;

}  // namespace

void* allocate_on_huge_pages(std::size_t bytes, std::size_t alignment) noexcept {
  const bool large = bytes >= kWorthHugePages;
  void* memory = nullptr;
  if (::posix_memalign(&memory, large ? std::max(kHugePage, alignment) : alignment, bytes) != 0) {
    return nullptr;
  }
  if (large) {
    // Whole huge pages alone, so that no more memory is taken than was asked for. A refusal costs
    // speed, nothing else.
    static_cast<void>(::madvise(memory, bytes / kHugePage * kHugePage, MADV_HUGEPAGE));
  }
  return memory;
}

}  // namespace k3

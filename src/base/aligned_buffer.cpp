#include "base/aligned_buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

namespace k3 {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20U;
constexpr std::size_t kWorthHugePages = 2 * kHugePage;

}  // namespace

void* allocate_zeroed(std::size_t bytes) noexcept {
  const bool large = bytes >= kWorthHugePages;
  void* memory = nullptr;
  if (::posix_memalign(&memory, large ? kHugePage : kCacheLine, bytes) != 0) {
    return nullptr;
  }
  if (large) {
    // Whole huge pages alone, so that no more memory is taken than was asked for. A refusal costs
    // speed, nothing else.
    static_cast<void>(::madvise(memory, bytes / kHugePage * kHugePage, MADV_HUGEPAGE));
  }
  std::memset(memory, 0, bytes);
  return memory;
}

void free_aligned(void* memory) noexcept {
  std::free(memory);
}

}  // namespace k3

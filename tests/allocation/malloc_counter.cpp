#include "allocation/malloc_counter.h"

#include <atomic>
#include <cerrno>
#include <cstdlib>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define K3_SANITIZER_OWNS_MALLOC
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define K3_SANITIZER_OWNS_MALLOC
#endif

#if defined(__GLIBC__) && !defined(K3_SANITIZER_OWNS_MALLOC)
#define K3_COUNTS_MALLOC
#endif

namespace k3::test {
namespace {

constinit std::atomic<bool> counting = false;
constinit std::atomic<std::size_t> allocations = 0;

}  // namespace

bool allocations_are_counted() {
#if defined(K3_COUNTS_MALLOC)
  return true;
#else
  return false;
#endif
}

// Called by the functions below.
[[maybe_unused]] static void count_allocation() noexcept {
  if (counting.load(std::memory_order_relaxed)) {
    allocations.fetch_add(1, std::memory_order_relaxed);
  }
}

AllocationCount::AllocationCount() {
  allocations = 0;
  counting = true;
}

AllocationCount::~AllocationCount() {
  counting = false;
}

std::size_t AllocationCount::so_far() const {
  return allocations;
}

}  // namespace k3::test

#if defined(K3_COUNTS_MALLOC)

// The malloc of a program precedes that of glibc in every library, libstdc++ and libgomp too. What
// it hands out is of glibc's heap, so glibc's free takes it.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming,readability-inconsistent-declaration-parameter-name,cert-dcl37-c,cert-dcl51-cpp)
extern "C" {

void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* old, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);

void* malloc(std::size_t size) noexcept {
  k3::test::count_allocation();
  return __libc_malloc(size);
}

void* calloc(std::size_t count, std::size_t size) noexcept {
  k3::test::count_allocation();
  return __libc_calloc(count, size);
}

void* realloc(void* old, std::size_t size) noexcept {
  k3::test::count_allocation();
  return __libc_realloc(old, size);
}

void* memalign(std::size_t alignment, std::size_t size) noexcept {
  k3::test::count_allocation();
  return __libc_memalign(alignment, size);
}

void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  k3::test::count_allocation();
  return __libc_memalign(alignment, size);
}

int posix_memalign(void** out, std::size_t alignment, std::size_t size) noexcept {
  k3::test::count_allocation();
  void* const memory = __libc_memalign(alignment, size);
  if (memory == nullptr) {
    return ENOMEM;
  }
  *out = memory;
  return 0;
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming,readability-inconsistent-declaration-parameter-name,cert-dcl37-c,cert-dcl51-cpp)

#endif

// Threads: the one place of the project that knows OpenMP.
//
// Bodies must not throw: an exception that leaves a parallel region ends the process. Work is split
// over rows, heads or tokens, never over a sum, so that results do not depend on the thread count.
#pragma once

#include <atomic>
#include <cstddef>

#if defined(_OPENMP)
#include <omp.h>
#endif

#include "base/float_environment.h"

namespace k3 {

// Threads that the next parallel region will use.
[[nodiscard]] inline int thread_count() noexcept {
#if defined(_OPENMP)
  return omp_get_max_threads();
#else
  return 1;
#endif
}

// Sets the number of threads for regions started by the calling thread; 1 without OpenMP.
inline void set_thread_count(int threads) noexcept {
#if defined(_OPENMP)
  omp_set_num_threads(threads);
#else
  static_cast<void>(threads);
#endif
}

// Work below which waking the threads costs more than it saves, in element operations: some tens of
// microseconds of vector code.
inline constexpr std::size_t kMinParallelWork = std::size_t{1} << 20;

// The bound in use. Tests set it to 0, so that threads share small work too.
inline std::atomic<std::size_t>& min_parallel_work() noexcept {
  static std::atomic<std::size_t> work = kMinParallelWork;
  return work;
}

// Calls body(index) for every index below `count`, each exactly once, on all threads. `item_work`
// is the rough number of element operations of one call; little work runs on the caller alone.
template <typename Body>
void parallel_for(std::size_t count, std::size_t item_work, const Body& body) noexcept {
#if defined(_OPENMP)
  if (count > 1 && count * item_work >= min_parallel_work().load(std::memory_order_relaxed) &&
      omp_get_max_threads() > 1) {
#pragma omp parallel
    {
      const ScopedFloatEnvironment environment;
#pragma omp for schedule(static)
      for (std::size_t index = 0; index < count; ++index) {
        body(index);  // NOLINT(openmp-exception-escape): bodies do not throw
      }
    }
    return;
  }
#else
  static_cast<void>(item_work);
#endif
  const ScopedFloatEnvironment environment;
  for (std::size_t index = 0; index < count; ++index) {
    body(index);
  }
}

// Calls body(first, last) for consecutive ranges of at most `grain` elements that cover [0, count);
// `element_work` is that of one element.
template <typename Body>
void parallel_ranges(std::size_t count,
                     std::size_t grain,
                     std::size_t element_work,
                     const Body& body) noexcept {
  parallel_for((count + grain - 1) / grain, grain * element_work, [&](std::size_t range) {
    const std::size_t first = range * grain;
    body(first, count - first < grain ? count : first + grain);
  });
}

}  // namespace k3

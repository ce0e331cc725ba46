// Counts the allocations of this process, of all its threads and libraries.
#pragma once

#include <cstddef>

namespace k3::test {

// Whether malloc_counter.cpp stands in for malloc: not in sanitizer builds, whose runtimes do, and
// only on glibc.
[[nodiscard]] bool allocations_are_counted();

// Counts while it is alive: calls of the malloc family, which every operator new ends in. Memory
// from mmap itself is not counted. One at a time.
class AllocationCount {
 public:
  AllocationCount();
  ~AllocationCount();
  AllocationCount(const AllocationCount&) = delete;
  AllocationCount& operator=(const AllocationCount&) = delete;

  [[nodiscard]] std::size_t so_far() const;
};

}  // namespace k3::test

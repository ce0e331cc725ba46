// Facts about the machine and this process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace k3 {

// What this process can still take without swapping and without meeting a limit.
struct AvailableMemory {
  std::uint64_t bytes = 0;
  std::string bound_by;  // "MemAvailable" or the directory of a control group; empty: unknown
  std::uint64_t ceiling = UINT64_MAX;  // the lowest limit of all control groups

  // What the process may have in all when `held` bytes are its own already. Pages of files that it
  // holds may be charged to another group, so that the sum can pass the limit. 0: unknown.
  [[nodiscard]] std::uint64_t with(std::uint64_t held) const;
};

// The least of MemAvailable in /proc/meminfo and what every control group above the process leaves
// (MemoryLimit::available in base/cgroup.h).
[[nodiscard]] AvailableMemory available_memory(const std::filesystem::path& root = "/");

// Memory of this process that is resident now. 0 when unknown.
[[nodiscard]] std::uint64_t resident_bytes();

// CPUs that the affinity mask and the cpuset of this process allow.
[[nodiscard]] std::vector<int> allowed_cpus();

// Different physical cores among `cpus`, by the topology below `root`/sys; a CPU without one counts
// as a core of its own.
[[nodiscard]] std::size_t physical_cores(const std::vector<int>& cpus,
                                         const std::filesystem::path& root = "/");

// Threads to use by default: the physical cores allowed to this process, no more than its CPU quota
// rounded up, at least 1.
[[nodiscard]] int default_threads(const std::filesystem::path& root = "/");

}  // namespace k3

// Facts about the machine and this process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace k3 {

// MemAvailable of /proc/meminfo: what a new process can take without swapping. 0 when unknown.
[[nodiscard]] std::uint64_t available_memory_bytes();

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

// Control groups of this process, version 1 and 2.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace k3 {

// The directories that govern this process for one controller ("cpu", "memory"), its own group
// first, then every group above it up to the mount. Empty when there is no such controller.
// `root` stands before /proc and the mount points; tests give another one.
[[nodiscard]] std::vector<std::filesystem::path> cgroup_directories(
    const std::string& controller, const std::filesystem::path& root = "/");

// CPUs that the quotas of all groups above the process leave to it, the smallest of quota / period;
// nothing when there is no quota.
[[nodiscard]] std::optional<double> cgroup_cpu_quota(const std::filesystem::path& root = "/");

// A group above the process that limits its memory, in bytes.
struct MemoryLimit {
  // Version 2: the lower of memory.max, where the kernel ends a process, and memory.high, where it
  // slows allocations until the use falls, so that a run planned above it would crawl. Version 1:
  // memory.limit_in_bytes, or less where memory.stat tells of a tighter group above the mount.
  std::uint64_t limit = 0;
  std::uint64_t used = 0;         // by all processes of the group, page cache included
  std::uint64_t reclaimable = 0;  // of it, file pages that the kernel drops when memory is short
  std::string where;              // the group's directory, as a process below `root` sees it

  // limit - (used - reclaimable), at least 0.
  [[nodiscard]] std::uint64_t available() const;
};

// The limits of all groups above the process, its own first; groups without a limit are left out.
// What cannot be read counts as: no limit, nothing used, nothing reclaimable.
[[nodiscard]] std::vector<MemoryLimit> cgroup_memory_limits(
    const std::filesystem::path& root = "/");

// For the report: the group with the lowest limit above the process.
struct CgroupMemoryUsage {
  std::uint64_t limit = 0;
  std::optional<std::uint64_t> peak;  // most used since the group was made; kernels before 5.19
                                      // do not tell in version 2
  std::string where;
};

// Nothing when no group has a limit.
[[nodiscard]] std::optional<CgroupMemoryUsage> cgroup_memory_usage(
    const std::filesystem::path& root = "/");

}  // namespace k3

// Control groups of this process, version 1 and 2.
#pragma once

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

}  // namespace k3

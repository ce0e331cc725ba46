#include "base/host.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "k3/engine.h"

#include "base/cgroup.h"

namespace k3 {

namespace {

std::optional<std::uint64_t> mem_available(const std::filesystem::path& root) {
  constexpr std::uint64_t kKibibyte = 1024;
  std::ifstream meminfo(root / "proc/meminfo");
  std::string key;
  std::uint64_t value = 0;
  while (meminfo >> key >> value) {
    if (key == "MemAvailable:") {
      return value * kKibibyte;
    }
    meminfo.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::nullopt;
}

}  // namespace

std::uint64_t AvailableMemory::with(std::uint64_t held) const {
  return bound_by.empty() ? 0 : std::min(ceiling, bytes + held);
}

AvailableMemory available_memory(const std::filesystem::path& root) {
  AvailableMemory least;
  if (const std::optional<std::uint64_t> bytes = mem_available(root)) {
    least.bytes = *bytes;
    least.bound_by = "MemAvailable";
  }
  for (const MemoryLimit& limit : cgroup_memory_limits(root)) {
    if (least.bound_by.empty() || limit.available() < least.bytes) {
      least.bytes = limit.available();
      least.bound_by = limit.where;
    }
    least.ceiling = std::min(least.ceiling, limit.limit);
  }
  return least;
}

std::uint64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t size = 0;
  std::uint64_t resident = 0;
  statm >> size >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

std::uint64_t peak_resident_bytes() {
  // Not getrusage(): its peak is that of the program before exec() too.
  constexpr std::uint64_t kKibibyte = 1024;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    constexpr std::string_view kKey = "VmHWM:";
    if (line.starts_with(kKey)) {
      return std::strtoull(line.c_str() + kKey.size(), nullptr, 10) * kKibibyte;
    }
  }
  return 0;
}

std::optional<GroupMemory> group_memory() {
  const std::optional<CgroupMemoryUsage> usage = cgroup_memory_usage();
  if (!usage) {
    return std::nullopt;
  }
  return GroupMemory{.group = usage->where, .limit = usage->limit, .peak = usage->peak};
}

std::vector<int> allowed_cpus() {
  // The kernel may know more CPUs than a cpu_set_t holds.
  for (std::size_t capacity = CPU_SETSIZE; capacity <= (std::size_t{1} << 20); capacity *= 2) {
    std::vector<cpu_set_t> sets(capacity / CPU_SETSIZE);
    const std::size_t bytes = sets.size() * sizeof(cpu_set_t);
    if (sched_getaffinity(0, bytes, sets.data()) != 0) {
      continue;
    }
    std::vector<int> cpus;
    for (std::size_t cpu = 0; cpu < capacity; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, sets.data())) {
        cpus.push_back(static_cast<int>(cpu));
      }
    }
    return cpus;
  }
  return {};
}

std::size_t physical_cores(const std::vector<int>& cpus, const std::filesystem::path& root) {
  std::set<std::pair<std::string, std::string>> cores;  // package and core
  for (const int cpu : cpus) {
    const auto topology =
        root / "sys/devices/system/cpu" / ("cpu" + std::to_string(cpu)) / "topology";
    std::string package;
    std::string core;
    std::ifstream(topology / "physical_package_id") >> package;
    std::ifstream(topology / "core_id") >> core;
    cores.insert(core.empty() ? std::pair(std::string("cpu"), std::to_string(cpu))
                              : std::pair(package, core));
  }
  return cores.size();
}

int default_threads(const std::filesystem::path& root) {
  double threads = static_cast<double>(physical_cores(allowed_cpus(), root));
  if (const std::optional<double> quota = cgroup_cpu_quota(root)) {
    threads = std::min(threads, std::ceil(*quota));
  }
  return std::max(1, static_cast<int>(threads));
}

}  // namespace k3

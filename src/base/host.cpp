#include "base/host.h"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "k3/engine.h"

#include "base/cgroup.h"

namespace k3 {

std::uint64_t available_memory_bytes() {
  constexpr std::uint64_t kKibibyte = 1024;
  std::ifstream meminfo("/proc/meminfo");
  std::string key;
  std::uint64_t value = 0;
  while (meminfo >> key >> value) {
    if (key == "MemAvailable:") {
      return value * kKibibyte;
    }
    meminfo.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return 0;
}

std::uint64_t peak_resident_bytes() {
  constexpr std::uint64_t kKibibyte = 1024;
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * kKibibyte;
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

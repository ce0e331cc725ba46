#include "base/host.h"

#include <sys/resource.h>

#include <fstream>
#include <limits>
#include <string>

#include "k3/engine.h"

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

}  // namespace k3

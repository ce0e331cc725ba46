// Facts about the machine and this process.
#pragma once

#include <cstdint>

namespace k3 {

// MemAvailable of /proc/meminfo: what a new process can take without swapping. 0 when unknown.
[[nodiscard]] std::uint64_t available_memory_bytes();

}  // namespace k3

// What lasts long can be followed and stopped.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "k3/errors.h"

namespace k3::runtime {

// Checked while waiting for a read or loading; null never stops.
using StopFlag = const std::atomic<bool>*;

// Throws Error(kInterrupted) when `stop` is set.
inline void check_stop(StopFlag stop, const char* doing) {
  if (stop != nullptr && stop->load(std::memory_order_relaxed)) {
    throw Error(ErrorKind::kInterrupted, std::string("interrupted while ") + doing);
  }
}

// Bytes loaded so far, of how many.
using LoadProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

}  // namespace k3::runtime

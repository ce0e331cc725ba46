// What follows a forward call, as far as the caller knows: weights can be read ahead for it.
#pragma once

#include <cstdint>

namespace k3 {

enum class NextForward : std::uint8_t {
  kNone,           // none for now: nothing is read ahead
  kWithoutLogits,  // one that does not use the head
  kWithLogits,
};

}  // namespace k3

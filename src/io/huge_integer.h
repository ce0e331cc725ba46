// Finds an integer beyond 64 bits in JSON text.
#pragma once

#include <optional>
#include <string_view>

namespace k3::io {

struct HugeInteger {
  std::string_view key;     // of the outermost object's member that holds it, escapes not decoded
  std::string_view digits;  // with its sign
};

// The JSON parser refuses such an integer without saying where it stands; this finds the first one,
// for the message. The text need not be valid.
[[nodiscard]] std::optional<HugeInteger> find_huge_integer(std::string_view text);

}  // namespace k3::io

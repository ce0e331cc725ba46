// Base64 (RFC 4648, section 4), the strict reading: padded, no blanks, no loose bits.
#pragma once

#include <string>
#include <string_view>

namespace k3::text {

// Appends the bytes that `digits` encode; false, with `bytes` as before, when it is not base64 or
// not the one canonical encoding of its bytes.
[[nodiscard]] bool append_base64(std::string_view digits, std::string& bytes);

}  // namespace k3::text

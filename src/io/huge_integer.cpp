#include "io/huge_integer.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <system_error>

namespace k3::io {
namespace {

// Index of the quote that closes a string whose text begins at `at`; text.size() without one.
std::size_t end_of_string(std::string_view text, std::size_t at) {
  while (at < text.size() && text[at] != '"') {
    at += text[at] == '\\' ? 2U : 1U;
  }
  return std::min(at, text.size());
}

bool fits_64_bits(std::string_view digits) {
  std::uint64_t value = 0;
  return std::from_chars(digits.data(), digits.data() + digits.size(), value).ec == std::errc();
}

}  // namespace

std::optional<HugeInteger> find_huge_integer(std::string_view text) {
  std::size_t depth = 0;
  std::string_view key;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char character = text[at];
    if (character == '"') {
      const std::size_t end = end_of_string(text, at + 1);
      if (depth == 1) {
        key = text.substr(at + 1, end - at - 1);
      }
      at = end;
    } else if (character == '{' || character == '[') {
      ++depth;
    } else if (character == '}' || character == ']') {
      depth -= depth > 0 ? 1U : 0U;
    } else if (character >= '0' && character <= '9') {
      const std::size_t end = std::min(text.find_first_not_of("0123456789", at), text.size());
      if (!fits_64_bits(text.substr(at, end - at))) {
        const std::size_t sign = at > 0 && text[at - 1] == '-' ? 1U : 0U;
        return HugeInteger{.key = key, .digits = text.substr(at - sign, end - at + sign)};
      }
      at = end - 1;
    }
  }
  return std::nullopt;
}

}  // namespace k3::io

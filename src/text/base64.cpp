#include "text/base64.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace k3::text {
namespace {

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr std::uint8_t kNoDigit = 64;

constexpr std::array<std::uint8_t, 256> make_values() {
  std::array<std::uint8_t, 256> values = {};
  values.fill(kNoDigit);
  for (std::size_t i = 0; i < kDigits.size(); ++i) {
    values[static_cast<unsigned char>(kDigits[i])] = static_cast<std::uint8_t>(i);
  }
  return values;
}

constexpr std::array<std::uint8_t, 256> kValues = make_values();

}  // namespace

bool append_base64(std::string_view digits, std::string& bytes) {
  constexpr std::size_t kGroup = 4;
  if (digits.size() % kGroup != 0) {
    return false;
  }
  std::size_t padding = 0;
  while (padding < 2 && digits.ends_with('=')) {
    digits.remove_suffix(1);
    ++padding;
  }
  const std::size_t before = bytes.size();
  std::uint32_t bits = 0;  // the low `count` of them wait for more
  unsigned count = 0;
  for (const char digit : digits) {
    const std::uint8_t value = kValues[static_cast<unsigned char>(digit)];
    if (value == kNoDigit) {
      bytes.resize(before);
      return false;
    }
    bits = (bits << 6U) | value;
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes += static_cast<char>(bits >> count);
      bits &= (1U << count) - 1U;
    }
  }
  if (bits != 0) {  // digits that say more than the bytes do
    bytes.resize(before);
    return false;
  }
  return true;
}

}  // namespace k3::text

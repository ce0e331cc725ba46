// E2M1 codes times E8M0 scales as bf16 bits: every such value is exact in bf16. Constants only.
#pragma once

#include <cstdint>

namespace k3::kernels {

// Bits of the bf16 for a four-bit code at a scale byte. Beyond the range: infinity. Scale 255: +0.
constexpr std::uint16_t scaled_code_bits(unsigned code, unsigned scale) {
  constexpr unsigned kNan = 255;
  constexpr int kFactor[8] = {0, 1, 1, 3, 1, 3, 1, 3};  // magnitude = factor * 2^power
  constexpr int kPower[8] = {0, -1, 0, -1, 1, 0, 2, 1};
  constexpr int kBias = 127;
  const unsigned index = code & 7U;
  const unsigned sign = scale == kNan ? 0U : (code & 8U) << 12;
  if (scale == kNan || index == 0) {
    return static_cast<std::uint16_t>(sign);
  }
  const int power = kPower[index] + static_cast<int>(scale) - kBias;
  const bool three = kFactor[index] == 3;
  const int exponent = three ? power + 1 : power;  // of the leading bit
  if (exponent > kBias) {
    return static_cast<std::uint16_t>(sign | 0x7F80U);
  }
  if (exponent > -kBias) {
    const unsigned fraction = three ? 0x40U : 0U;
    return static_cast<std::uint16_t>(sign | (static_cast<unsigned>(exponent + kBias) << 7) |
                                      fraction);
  }
  // Denormal: units of 2^-133.
  return static_cast<std::uint16_t>(sign |
                                    (static_cast<unsigned>(kFactor[index]) << (power + 133)));
}

}  // namespace k3::kernels

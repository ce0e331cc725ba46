// Exact conversions between stored float formats and float32.
#pragma once

#include <bit>
#include <cstdint>

namespace k3 {

// bf16 is the upper half of a float32: every value is exact, NaN payloads included.
[[nodiscard]] inline float bf16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// IEEE binary16 to float32; exact for every value, denormals included.
[[nodiscard]] inline float f16_to_float(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1FU;
  const std::uint32_t mantissa = bits & 0x3FFU;
  if (exponent == 0) {
    constexpr float kDenormalUnit = 0x1p-24F;
    const float magnitude = static_cast<float>(mantissa) * kDenormalUnit;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  const std::uint32_t wide_exponent = exponent == 31 ? 255U : exponent + 112U;
  return std::bit_cast<float>(sign | (wide_exponent << 23) | (mantissa << 13));
}

// True for finite values: the exponent field is not all ones.
[[nodiscard]] inline bool is_finite(float value) {
  constexpr std::uint32_t kExponentMask = 0x7F800000U;
  return (std::bit_cast<std::uint32_t>(value) & kExponentMask) != kExponentMask;
}

}  // namespace k3

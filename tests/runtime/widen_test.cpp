#include "runtime/widen.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

namespace k3::runtime {
namespace {

float widen_half(DType dtype, std::uint16_t bits) {
  float value = 0.0F;
  widen(dtype, std::as_bytes(std::span(&bits, 1)), std::span(&value, 1));
  return value;
}

TEST(Widen, EveryF16ValueIsExact) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = widen_half(DType::kF16, static_cast<std::uint16_t>(bits));
    const std::uint32_t exponent = (bits >> 10U) & 0x1fU;
    const auto fraction = static_cast<float>(bits & 0x3ffU);
    const bool negative = bits >= 0x8000;
    EXPECT_EQ(std::signbit(value), negative);
    if (exponent == 0x1f) {
      EXPECT_EQ(std::isinf(value), fraction == 0.0F);
      EXPECT_EQ(std::isnan(value), fraction != 0.0F);
      continue;
    }
    const float magnitude = exponent == 0
                                ? std::ldexp(fraction, -24)
                                : std::ldexp(1024.0F + fraction, static_cast<int>(exponent) - 25);
    EXPECT_EQ(value, negative ? -magnitude : magnitude) << bits;
  }
}

TEST(Widen, Bf16IsTheUpperHalfOfFloat32) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = widen_half(DType::kBf16, static_cast<std::uint16_t>(bits));
    EXPECT_EQ(std::bit_cast<std::uint32_t>(value), bits << 16U);
  }
}

TEST(Widen, F32IsCopiedBitForBit) {
  const std::vector<std::uint32_t> bits = {0x3f800000U, 0x80000000U, 0x7fc12345U, 0x00000001U};
  std::vector<float> values(bits.size());
  widen(DType::kF32, std::as_bytes(std::span(bits)), values);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(values[i]), bits[i]);
  }
}

TEST(Widen, MisuseIsALogicError) {
  std::vector<float> values(2);
  const std::vector<std::byte> bytes(4);
  EXPECT_THROW(widen(DType::kF32, bytes, values), std::logic_error);
  EXPECT_THROW(widen(DType::kU8, std::span(bytes).first(2), values), std::logic_error);
}

}  // namespace
}  // namespace k3::runtime

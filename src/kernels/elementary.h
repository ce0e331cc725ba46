// exp, sigmoid and tanh as fixed sequences of float32 operations.
//
// They are part of the numeric contract (docs/numerics.md): libm is not, since its bits differ
// between versions and processors. Vector code must reproduce these sequences operation by
// operation. Accuracy: exp about 1 ulp, tanh 1.3 ulp. NaN gives NaN.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace k3::kernels {

namespace exp_constants {
inline constexpr float kLowest = -104.0F;          // below: +0
inline constexpr float kHighest = 89.0F;           // above: infinity
inline constexpr float kLog2E = 0x1.715476p+0F;    // 1 / ln 2
inline constexpr float kLn2High = 0x1.62e400p-1F;  // upper bits of ln 2: n * kLn2High is exact
inline constexpr float kLn2Low = 0x1.7f7d1cp-20F;  // ln 2 - kLn2High
inline constexpr float kRoundMagic = 0x1.8p+23F;   // adding it rounds to an integer
// (exp(r) - 1 - r) / r^2 on |r| <= ln 2 / 2, highest power first
inline constexpr float kPolynomial[] = {0x1.a01a02p-13F, 0x1.6c16c2p-10F, 0x1.111112p-7F,
                                        0x1.555556p-5F,  0x1.555556p-3F,  0x1p-1F};
}  // namespace exp_constants

namespace tanh_constants {
inline constexpr float kPolynomialLimit = 0.625F;  // odd polynomial below, exp form from here on
// (tanh(x) - x) / x^3 in x^2, highest power first
inline constexpr float kPolynomial[] = {-5.70498872745e-3F, 2.06390887954e-2F, -5.37397155531e-2F,
                                        1.33314422036e-1F, -3.33332819422e-1F};
}  // namespace tanh_constants

// 2^n for -126 <= n <= 127, from the exponent field.
[[nodiscard]] inline float power_of_two(std::uint32_t n) {
  return std::bit_cast<float>((n + 127U) << 23);
}

// exp(x) = 2^n * (1 + (r + r * r * q(r))), n = round(x / ln 2), r = x - n ln 2.
[[nodiscard]] inline float exp_contract(float x) {
  using namespace exp_constants;  // NOLINT(google-build-using-namespace): constants of this formula
  x = x < kLowest ? kLowest : x;
  x = x > kHighest ? kHighest : x;
  const float shifted = std::fma(x, kLog2E, kRoundMagic);
  const float n = shifted - kRoundMagic;
  float r = std::fma(n, -kLn2High, x);
  r = std::fma(n, -kLn2Low, r);
  float q = kPolynomial[0];
  for (int i = 1; i < 6; ++i) {
    q = std::fma(q, r, kPolynomial[i]);
  }
  const float p = 1.0F + std::fma(r * r, q, r);
  // Two steps, so that results below 2^-126 round once and results above 2^128 overflow.
  const std::uint32_t exponent =
      std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(kRoundMagic);
  const std::uint32_t half = (exponent >> 1) | (exponent & 0x80000000U);
  return p * power_of_two(half) * power_of_two(exponent - half);
}

// 1 / (1 + exp(-x)); 0 below about -88, where the true value is denormal.
[[nodiscard]] inline float sigmoid_contract(float x) {
  return 1.0F / (1.0F + exp_contract(-x));
}

// On a = |x|: polynomial below 0.625, else 1 - 2 / (exp(2 a) + 1); then the sign bit of x.
[[nodiscard]] inline float tanh_contract(float x) {
  using namespace tanh_constants;  // NOLINT(google-build-using-namespace)
  const float a = std::fabs(x);
  const float z = a * a;
  float p = kPolynomial[0];
  for (int i = 1; i < 5; ++i) {
    p = std::fma(p, z, kPolynomial[i]);
  }
  const float small = std::fma(p * z, a, a);
  const float big = 1.0F - 2.0F / (exp_contract(a + a) + 1.0F);
  return std::copysign(a < kPolynomialLimit ? small : big, x);
}

// x * sigmoid(x)
[[nodiscard]] inline float silu_contract(float x) {
  return x * sigmoid_contract(x);
}

}  // namespace k3::kernels

// exp, sigmoid and tanh as fixed sequences of float32 operations.
//
// They are part of the numeric contract (docs/numerics.md): libm is not, since its bits differ
// between versions and processors. Vector code must reproduce these sequences operation by
// operation. Accuracy: exp about 1 ulp, tanh 1.3 ulp. NaN gives NaN.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/elementary_constants.h"

namespace k3::kernels {

// Element operations that one of these functions counts for in parallel_for().
inline constexpr std::size_t kTranscendentalWork = 16;

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

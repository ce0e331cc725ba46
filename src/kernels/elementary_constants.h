// Constants of exp and tanh (elementary.h), for scalar and vector code.
#pragma once

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

}  // namespace k3::kernels

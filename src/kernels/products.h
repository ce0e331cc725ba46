// Matrix products under the summation contract C2 (docs/numerics.md).
//
// One output is sum over i of w[i] * x[i], always in this order, for every storage type, batch
// size and thread count:
//   * 32 lanes of float32; element i goes to lane i mod 32 by fused multiply-add;
//   * within a block of 1,024 elements the lanes start at +0; the first block's lanes become the
//     running totals, later blocks' lanes are added to them;
//   * at the end one tree over the lanes: s[j] = t[2j] + t[2j+1] for 16 j, then s[j] += s[j+8],
//     s[j] += s[j+4], s[j] += s[j+2], and s[0] + s[1];
//   * elements beyond the row are skipped, never multiplied by zero.
// Weights enter at their exact value. An E8M0 scale of 255 makes its weights +0.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/matrix_view.h"

namespace k3::kernels {

inline constexpr std::size_t kLanes = 32;
inline constexpr std::size_t kSumBlock = 1024;  // elements; a multiple of kLanes

// Value of a four-bit E2M1 code at scale 2^0. Only the low four bits count.
[[nodiscard]] float e2m1_value(unsigned code);

// Factor of an E8M0 byte: 2^(s - 127), and 0 for 255. Weight = e2m1_value * factor in float32,
// except that 255 gives +0 for negative codes too.
[[nodiscard]] float e8m0_factor(std::uint8_t scale);

// One weight of an MXFP4 matrix.
[[nodiscard]] float mxfp4_value(const Mxfp4Matrix& matrix, std::size_t row, std::size_t col);

// A batch of row vectors: `count` vectors, `stride` floats apart.
struct Batch {
  const float* data = nullptr;  // [count][stride]
  std::size_t count = 0;
  std::size_t stride = 0;
};

// y[t][r] = sum over c of weights[r][c] * x[t][c], y_stride floats from token to token.
// Rows are split over the threads.
void multiply(const MatrixView& weights, const Batch& x, float* y, std::size_t y_stride);

// The same on the calling thread alone, for use inside a parallel region.
void multiply_serial(const MatrixView& weights,
                     const Batch& x,
                     float* y,
                     std::size_t y_stride) noexcept;

// sum[c] = fma(factors[r], weights[r][c], sum[c]), row after row: a sum that runs over the rows of
// a matrix. `sum` is not cleared. bf16 and float32 matrices; serial.
void accumulate_rows(const MatrixView& weights, const float* factors, float* sum) noexcept;

}  // namespace k3::kernels

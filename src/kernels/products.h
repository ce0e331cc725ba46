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
#include "kernels/contract.h"
#include "kernels/kernel_table.h"

namespace k3::kernels {

// Value of a four-bit E2M1 code at scale 2^0. Only the low four bits count.
[[nodiscard]] float e2m1_value(unsigned code);

// Factor of an E8M0 byte: 2^(s - 127), and 0 for 255. Weight = e2m1_value * factor in float32,
// except that 255 gives +0 for negative codes too.
[[nodiscard]] float e8m0_factor(std::uint8_t scale);

// One weight of an MXFP4 matrix.
[[nodiscard]] float mxfp4_value(const Mxfp4Matrix& matrix, std::size_t row, std::size_t col);

// Floats of scratch that products of `count` vectors of up to `cols` elements need, for any table
// and storage type.
[[nodiscard]] std::size_t product_scratch_floats(std::size_t cols, std::size_t count);

// Rows of a task when `rows` > 0 rows times `count` vectors are split over the threads. One vector:
// equal shares, so that no thread waits for another, of long streams. Batches: enough rows to share
// what is packed, few enough to keep all threads busy.
[[nodiscard]] std::size_t product_rows_per_task(std::size_t rows,
                                                std::size_t count,
                                                std::size_t threads);

// y[t][r] = sum over c of weights[r][c] * x[t][c]. Packing and rows are split over the threads.
// `scratch`: product_scratch_floats(cols, x.count) floats, aligned to a cache line.
void multiply(const MatrixView& weights, const Batch& x, float* scratch, const Outputs& y);

// The same on the calling thread alone, for use inside a parallel region.
void multiply_serial(const MatrixView& weights,
                     const Batch& x,
                     float* scratch,
                     const Outputs& y) noexcept;

// sums[t][c] = fma(factors[t][r], weights[r][c], sums[t][c]), row after row: sums that run over the
// rows of a matrix. The sums are not cleared. bf16 and float32 matrices; serial.
void accumulate_rows(const MatrixView& weights, const Batch& factors, const Outputs& sums) noexcept;

}  // namespace k3::kernels

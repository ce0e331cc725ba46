// The kernels of one instruction set: plain functions, serial, chosen once at run time.
//
// The scalar table is the numeric contract in code (docs/numerics.md). Every other table gives the
// same bits. Included by files that are compiled for one instruction set, so it names plain types
// only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/matrix_types.h"

namespace k3::kernels {

// A batch of row vectors: `count` vectors, `stride` floats apart.
struct Batch {
  const float* data = nullptr;  // [count][stride]
  std::size_t count = 0;
  std::size_t stride = 0;
};

// Where outputs go: value r of vector t at data[t * stride + r].
struct Outputs {
  float* data = nullptr;
  std::size_t stride = 0;
};

struct SituBetas;
struct ShortConv;
struct ConvPart;
struct DecayGate;
struct KdaStep;

// The products of one storage type. A batch is packed once, in an order of the table's own, and
// then multiplied with any rows of matrices that have its width, from any thread.
template <typename Matrix>
struct ProductKernels {
  // Floats of the packed form of `count` vectors of `cols` elements.
  std::size_t (*packed_floats)(std::size_t cols, std::size_t count);
  // Packs vectors [first, last) of the batch; calls for disjoint ranges may run side by side. A
  // range begins at a multiple of kPackGrain.
  void (*pack)(
      const Batch& x, std::size_t cols, std::size_t first, std::size_t last, float* packed);
  // y[t][r] = sum over c of matrix[r][c] * x[t][c] under contract C2.
  void (*multiply)(const Matrix& matrix, const float* packed, std::size_t count, const Outputs& y);
};

// Vectors that are packed together: a multiple of every table's tile.
inline constexpr std::size_t kPackGrain = 32;

// Sums over the rows of a matrix: sum[t][c] = fma(factors[t][r], matrix[r][c], sum[t][c]), row after
// row, for `factors.count` vectors.
template <typename Matrix>
using AccumulateKernel = void (*)(const Matrix& matrix, const Batch& factors, const Outputs& sums);

// Rows of equal width, 1 to kSumRows of them, to be summed side by side.
struct RowList {
  const float* const* rows = nullptr;  // [count] -> [width]
  std::size_t count = 0;
  std::size_t width = 0;
};

inline constexpr std::size_t kSumRows = 8;

struct KernelTable {
  const char* name;  // as K3_ISA spells it

  ProductKernels<Bf16Matrix> bf16;
  ProductKernels<F32Matrix> f32;
  ProductKernels<Mxfp4Matrix> mxfp4;
  AccumulateKernel<Bf16Matrix> accumulate_bf16;
  AccumulateKernel<F32Matrix> accumulate_f32;

  // values[i] = exp(values[i] - shift)
  void (*exponentials)(float* values, std::size_t count, float shift);
  // values[i] = sigmoid(values[i])
  void (*sigmoid)(float* values, std::size_t count);
  // values[i] = tanh(values[i])
  void (*tanh)(float* values, std::size_t count);
  // values[i] *= sigmoid(gate[i])
  void (*gate)(const float* gate, std::size_t count, float* values);
  // See activation.h.
  void (*situ_glu)(
      const float* gate, const float* up, const SituBetas& betas, std::size_t count, float* out);
  // sum[i] = fma(weight, value[i], sum[i])
  void (*add_scaled)(float weight, const float* value, std::size_t count, float* sum);
  // Sums over each row in double, in order: of x[i] ...
  void (*row_sums)(const RowList& list, double* sums);
  // ... of x[i] * x[i] ...
  void (*square_sums)(const RowList& list, double* sums);
  // ... and of both x[i] * x[i] and x[i] * weight[i].
  void (*score_sums)(const RowList& list, const float* weight, double* squares, double* products);
  // out[i] = gain[i] * (x[i] * scale). `out` may be `x`.
  void (*scale_by_gain)(
      const float* x, const float* gain, float scale, std::size_t count, float* out);
  // out[c] = silu(sum over taps, oldest first) for the channels of the part.
  void (*convolve)(const ShortConv& conv, const ConvPart& part, float* out);
  // See kda.h.
  void (*kda_decay)(const DecayGate& gate, float* z);
  void (*kda_step)(const KdaStep& step, std::size_t width, float* state, float* out);
};

}  // namespace k3::kernels

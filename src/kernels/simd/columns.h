// Sums over the rows of a matrix, vectorised over columns, for any Vector. Included by one file per
// instruction set.
#pragma once

#include <cstddef>

#include "kernels/kda.h"
#include "kernels/kernel_table.h"
#include "kernels/simd/products.h"
#include "kernels/simd/vector.h"

namespace k3::kernels {
namespace {

// Vectors of columns that are summed together, in registers.
inline constexpr std::size_t kColumnVectors = 4;
inline constexpr std::size_t kColumnTile = kColumnVectors * Vector::kWidth;
// Vectors of factors that share the loads of the matrix.
inline constexpr std::size_t kFactorTile = Vector::kWidth == 16 ? 6 : 2;

inline Vector load_weights(const Bf16Matrix& m, std::size_t row, std::size_t col) {
  return widen_bf16(m.data + row * m.stride + col);
}

inline Vector load_weights(const F32Matrix& m, std::size_t row, std::size_t col) {
  return Vector::load(m.data + row * m.stride + col);
}

// kColumnTile columns from `col` on, `Count` vectors of factors from `t` on.
template <typename Matrix, std::size_t Count>
void accumulate_tile(
    const Matrix& m, const Batch& factors, std::size_t t, std::size_t col, const Outputs& sums) {
  Vector sum[Count][kColumnVectors];
  for (std::size_t i = 0; i < Count; ++i) {
    for (std::size_t v = 0; v < kColumnVectors; ++v) {
      sum[i][v] = Vector::load(sums.data + (t + i) * sums.stride + col + v * Vector::kWidth);
    }
  }
  for (std::size_t r = 0; r < m.rows; ++r) {
    Vector weights[kColumnVectors];
    for (std::size_t v = 0; v < kColumnVectors; ++v) {
      weights[v] = load_weights(m, r, col + v * Vector::kWidth);
    }
    for (std::size_t i = 0; i < Count; ++i) {
      const Vector factor = Vector::all(factors.data[(t + i) * factors.stride + r]);
      for (std::size_t v = 0; v < kColumnVectors; ++v) {
        sum[i][v] = fma(factor, weights[v], sum[i][v]);
      }
    }
  }
  for (std::size_t i = 0; i < Count; ++i) {
    for (std::size_t v = 0; v < kColumnVectors; ++v) {
      sum[i][v].store(sums.data + (t + i) * sums.stride + col + v * Vector::kWidth);
    }
  }
}

// Columns from `col` on that fill no tile, one by one.
template <typename Matrix>
void accumulate_rest(const Matrix& m, const Batch& factors, std::size_t col, const Outputs& sums) {
  for (std::size_t t = 0; t < factors.count; ++t) {
    for (std::size_t c = col; c < m.cols; ++c) {
      float sum = sums.data[t * sums.stride + c];
      for (std::size_t r = 0; r < m.rows; ++r) {
        sum = __builtin_fmaf(factors.data[t * factors.stride + r], weight_at(m, r, c), sum);
      }
      sums.data[t * sums.stride + c] = sum;
    }
  }
}

template <typename Matrix>
void accumulate(const Matrix& m, const Batch& factors, const Outputs& sums) {
  std::size_t col = 0;
  for (; col + kColumnTile <= m.cols; col += kColumnTile) {
    std::size_t t = 0;
    for (; t + kFactorTile <= factors.count; t += kFactorTile) {
      accumulate_tile<Matrix, kFactorTile>(m, factors, t, col, sums);
    }
    for (; t < factors.count; ++t) {
      accumulate_tile<Matrix, 1>(m, factors, t, col, sums);
    }
  }
  accumulate_rest(m, factors, col, sums);
}

// --- KDA ---

// `Vectors` vectors of value columns from `col` on; their part of the state stays in the L1 cache
// between the two sweeps.
template <std::size_t Vectors>
void kda_step_columns(
    const KdaStep& step, std::size_t width, std::size_t col, float* state, float* out) {
  Vector sum[Vectors];
  for (Vector& s : sum) {
    s = Vector::zero();
  }
  for (std::size_t i = 0; i < width; ++i) {
    float* row = state + i * width + col;
    const Vector alpha = Vector::all(step.alpha[i]);
    const Vector key = Vector::all(step.k[i]);
    for (std::size_t v = 0; v < Vectors; ++v) {
      const Vector decayed = Vector::load(row + v * Vector::kWidth) * alpha;
      decayed.store(row + v * Vector::kWidth);
      sum[v] = fma(key, decayed, sum[v]);
    }
  }
  Vector update[Vectors];
  for (std::size_t v = 0; v < Vectors; ++v) {
    update[v] = Vector::all(step.beta) * (Vector::load(step.v + col + v * Vector::kWidth) - sum[v]);
    sum[v] = Vector::zero();
  }
  for (std::size_t i = 0; i < width; ++i) {
    float* row = state + i * width + col;
    const Vector key = Vector::all(step.k[i]);
    const Vector query = Vector::all(step.q[i]);
    for (std::size_t v = 0; v < Vectors; ++v) {
      const Vector updated = fma(key, update[v], Vector::load(row + v * Vector::kWidth));
      updated.store(row + v * Vector::kWidth);
      sum[v] = fma(query, updated, sum[v]);
    }
  }
  for (std::size_t v = 0; v < Vectors; ++v) {
    sum[v].store(out + col + v * Vector::kWidth);
  }
}

// One value column in scalar code.
inline void kda_step_column(
    const KdaStep& step, std::size_t width, std::size_t col, float* state, float* out) {
  float answer = 0.0F;
  for (std::size_t i = 0; i < width; ++i) {
    float& value = state[i * width + col];
    value *= step.alpha[i];
    answer = __builtin_fmaf(step.k[i], value, answer);
  }
  const float update = step.beta * (step.v[col] - answer);
  float sum = 0.0F;
  for (std::size_t i = 0; i < width; ++i) {
    float& value = state[i * width + col];
    value = __builtin_fmaf(step.k[i], update, value);
    sum = __builtin_fmaf(step.q[i], value, sum);
  }
  out[col] = sum;
}

inline void kda_step_vector(const KdaStep& step, std::size_t width, float* state, float* out) {
  std::size_t col = 0;
  for (; col + kColumnTile <= width; col += kColumnTile) {
    kda_step_columns<kColumnVectors>(step, width, col, state, out);
  }
  for (; col + Vector::kWidth <= width; col += Vector::kWidth) {
    kda_step_columns<1>(step, width, col, state, out);
  }
  for (; col < width; ++col) {
    kda_step_column(step, width, col, state, out);
  }
}

}  // namespace
}  // namespace k3::kernels

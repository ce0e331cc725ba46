// The table of one instruction set. Included last by one file per instruction set.
#pragma once

#include "kernels/simd/columns.h"
#include "kernels/simd/elementwise.h"
#include "kernels/simd/ordered_sums.h"
#include "kernels/simd/products.h"

namespace k3::kernels {
namespace {

constexpr KernelTable make_table(const char* name) {
  return {
      .name = name,
      .bf16 = product_kernels<Bf16Format>(),
      .f32 = product_kernels<F32Format>(),
      .mxfp4 = product_kernels<Mxfp4Format>(),
      .accumulate_bf16 = accumulate<Bf16Matrix>,
      .accumulate_f32 = accumulate<F32Matrix>,
      .exponentials = exponentials,
      .sigmoid = sigmoid,
      .tanh = tanh,
      .gate = gate,
      .situ_glu = situ_glu_vector,
      .add_scaled = add_scaled_vector,
      .row_sums = list_sums<PlainSum>,
      .square_sums = list_sums<SquareSum>,
      .score_sums = score_sums_vector,
      .scale_by_gain = scale_by_gain,
      .convolve = convolve,
      .kda_decay = kda_decay_vector,
      .kda_step = kda_step_vector,
  };
}

}  // namespace
}  // namespace k3::kernels

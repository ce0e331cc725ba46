// Products under contract C2, for any Vector: the kernels of the table. Included by one file per
// instruction set.
#pragma once

#include <cstddef>

#include "kernels/simd/products_batch.h"
#include "kernels/simd/products_pack.h"
#include "kernels/simd/products_single.h"

namespace k3::kernels {
namespace {

template <typename Format>
void multiply_batch(const typename Format::Matrix& m,
                    const float* packed,
                    std::size_t count,
                    const Outputs& y) {
  if (!is_single(m.cols, count)) {
    multiply_passes<Format>(m, packed, count, y);
    return;
  }
  for (std::size_t t = 0; t < count; ++t) {
    multiply_single<Format>(m, packed + t * round_up(m.cols, kGroup), y.data + t * y.stride);
  }
}

template <typename Format>
constexpr ProductKernels<typename Format::Matrix> product_kernels() {
  return {packed_floats, pack<Format>, multiply_batch<Format>};
}

}  // namespace
}  // namespace k3::kernels

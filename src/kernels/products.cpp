#include "kernels/products.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "base/parallel.h"
#include "kernels/isa.h"

namespace k3::kernels {
namespace {

const ProductKernels<Bf16Matrix>& kernels_of(const KernelTable& table, const Bf16Matrix& /*m*/) {
  return table.bf16;
}

const ProductKernels<F32Matrix>& kernels_of(const KernelTable& table, const F32Matrix& /*m*/) {
  return table.f32;
}

const ProductKernels<Mxfp4Matrix>& kernels_of(const KernelTable& table, const Mxfp4Matrix& /*m*/) {
  return table.mxfp4;
}

void accumulate(const Bf16Matrix& m, const Batch& factors, const Outputs& sums) {
  kernels().accumulate_bf16(m, factors, sums);
}

void accumulate(const F32Matrix& m, const Batch& factors, const Outputs& sums) {
  kernels().accumulate_f32(m, factors, sums);
}

// No weights of this type run over rows: kv_b is trunk, latents are float32.
void accumulate(const Mxfp4Matrix& m, const Batch& factors, const Outputs& sums) {
  for (std::size_t t = 0; t < factors.count; ++t) {
    for (std::size_t r = 0; r < m.rows; ++r) {
      for (std::size_t c = 0; c < m.cols; ++c) {
        float& sum = sums.data[t * sums.stride + c];
        sum = std::fma(factors.data[t * factors.stride + r], mxfp4_value(m, r, c), sum);
      }
    }
  }
}

template <typename Matrix>
void multiply_threaded(const Matrix& matrix, const Batch& x, float* scratch, const Outputs& y) {
  const ProductKernels<Matrix>& k = kernels_of(kernels(), matrix);
  parallel_ranges(x.count, kPackGrain, matrix.cols, [&](std::size_t first, std::size_t last) {
    k.pack(x, matrix.cols, first, last, scratch);
  });
  if (matrix.rows == 0) {
    return;
  }
  const std::size_t rows_per_task =
      product_rows_per_task(matrix.rows, x.count, static_cast<std::size_t>(thread_count()));
  const std::size_t tasks = (matrix.rows + rows_per_task - 1) / rows_per_task;
  parallel_for(tasks, rows_per_task * matrix.cols * x.count, [&](std::size_t task) {
    const std::size_t first = task * rows_per_task;
    const std::size_t count = std::min(rows_per_task, matrix.rows - first);
    k.multiply(slice_rows(matrix, first, count), scratch, x.count, {y.data + first, y.stride});
  });
}

}  // namespace

float e2m1_value(unsigned code) {
  constexpr std::array<float, 16> kValues = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,
                                             4.0F,  6.0F,  -0.0F, -0.5F, -1.0F, -1.5F,
                                             -2.0F, -3.0F, -4.0F, -6.0F};
  return kValues[code & 0xFU];
}

float e8m0_factor(std::uint8_t scale) {
  if (scale == 255) {
    return 0.0F;
  }
  constexpr std::uint32_t kSmallestBits = 0x00400000U;  // 2^-127, a denormal
  return std::bit_cast<float>(scale == 0 ? kSmallestBits : static_cast<std::uint32_t>(scale) << 23);
}

float mxfp4_value(const Mxfp4Matrix& matrix, std::size_t row, std::size_t col) {
  const std::uint8_t scale = matrix.scales[row * matrix.scale_stride + col / kMxfp4Group];
  const unsigned byte = matrix.packed[row * matrix.packed_stride + col / 2];
  const unsigned code = (col % 2 == 0) ? byte : byte >> 4;
  return scale == 255 ? 0.0F : e2m1_value(code) * e8m0_factor(scale);
}

std::size_t product_scratch_floats(std::size_t cols, std::size_t count) {
  cols = (cols + kLanes - 1) / kLanes * kLanes;  // what a width that is padded takes
  std::size_t most = 0;
  for (const KernelTable* table : supported_tables()) {
    most =
        std::max({most, table->bf16.packed_floats(cols, count),
                  table->f32.packed_floats(cols, count), table->mxfp4.packed_floats(cols, count)});
  }
  return most;
}

std::size_t product_rows_per_task(std::size_t rows, std::size_t count, std::size_t threads) {
  constexpr std::size_t kTasksPerThread = 4;
  constexpr std::size_t kMostBatchRows = 96;
  const std::size_t grain = count == 1 ? 4 : 48;
  const std::size_t share = (rows + kTasksPerThread * threads - 1) / (kTasksPerThread * threads);
  const std::size_t whole = (share + grain - 1) / grain * grain;
  return count == 1 ? whole : std::min(kMostBatchRows, whole);
}

void multiply(const MatrixView& weights, const Batch& x, float* scratch, const Outputs& y) {
  std::visit([&](const auto& matrix) { multiply_threaded(matrix, x, scratch, y); }, weights);
}

void multiply_serial(const MatrixView& weights,
                     const Batch& x,
                     float* scratch,
                     const Outputs& y) noexcept {
  std::visit(
      [&](const auto& matrix) {
        const auto& k = kernels_of(kernels(), matrix);
        k.pack(x, matrix.cols, 0, x.count, scratch);
        k.multiply(matrix, scratch, x.count, y);
      },
      weights);
}

void accumulate_rows(const MatrixView& weights,
                     const Batch& factors,
                     const Outputs& sums) noexcept {
  std::visit([&](const auto& matrix) { accumulate(matrix, factors, sums); }, weights);
}

}  // namespace k3::kernels

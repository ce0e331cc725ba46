#include "kernels/products.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "base/float_bits.h"
#include "base/parallel.h"

namespace k3::kernels {
namespace {

// A row of any storage type: operator()(i) is the exact weight i.
struct Bf16Row {
  const std::uint16_t* data;

  float operator()(std::size_t i) const { return bf16_to_float(data[i]); }
};

struct F32Row {
  const float* data;

  float operator()(std::size_t i) const { return data[i]; }
};

struct Mxfp4Row {
  const std::uint8_t* packed;
  const std::uint8_t* scales;

  float operator()(std::size_t i) const {
    const std::uint8_t scale = scales[i / kMxfp4Group];
    const unsigned byte = packed[i / 2];
    const unsigned code = (i % 2 == 0) ? byte : byte >> 4;
    return scale == 255 ? 0.0F : e2m1_value(code) * e8m0_factor(scale);
  }
};

Bf16Row row_of(const Bf16Matrix& m, std::size_t row) {
  return {m.data + row * m.stride};
}

F32Row row_of(const F32Matrix& m, std::size_t row) {
  return {m.data + row * m.stride};
}

Mxfp4Row row_of(const Mxfp4Matrix& m, std::size_t row) {
  return {m.packed + row * m.packed_stride, m.scales + row * m.scale_stride};
}

using Lanes = std::array<float, kLanes>;

// The tree over the lanes.
float reduce_lanes(const Lanes& lanes) {
  std::array<float, kLanes / 2> s;
  for (std::size_t j = 0; j < s.size(); ++j) {
    s[j] = lanes[2 * j] + lanes[2 * j + 1];
  }
  for (std::size_t width = s.size() / 2; width >= 1; width /= 2) {
    for (std::size_t j = 0; j < width; ++j) {
      s[j] += s[j + width];
    }
  }
  return s[0];
}

// Lane sums of elements [first, last) of a row, at most one block.
template <typename Row>
Lanes block_lanes(const Row& row, const float* x, std::size_t first, std::size_t last) {
  Lanes lanes = {};
  for (std::size_t i = first; i < last; ++i) {
    lanes[i % kLanes] = std::fma(row(i), x[i], lanes[i % kLanes]);
  }
  return lanes;
}

template <typename Row>
float dot(const Row& row, const float* x, std::size_t n) {
  Lanes totals = block_lanes(row, x, 0, std::min(n, kSumBlock));
  for (std::size_t first = kSumBlock; first < n; first += kSumBlock) {
    const Lanes lanes = block_lanes(row, x, first, std::min(n, first + kSumBlock));
    for (std::size_t j = 0; j < kLanes; ++j) {
      totals[j] += lanes[j];
    }
  }
  return reduce_lanes(totals);
}

template <typename Matrix>
void accumulate(const Matrix& weights, const float* factors, float* sum) {
  for (std::size_t r = 0; r < weights.rows; ++r) {
    const auto row = row_of(weights, r);
    for (std::size_t c = 0; c < weights.cols; ++c) {
      sum[c] = std::fma(factors[r], row(c), sum[c]);
    }
  }
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
  return row_of(matrix, row)(col);
}

void multiply_serial(const MatrixView& weights,
                     const Batch& x,
                     float* y,
                     std::size_t y_stride) noexcept {
  std::visit(
      [&](const auto& matrix) {
        for (std::size_t r = 0; r < matrix.rows; ++r) {
          const auto row = row_of(matrix, r);
          for (std::size_t t = 0; t < x.count; ++t) {
            y[t * y_stride + r] = dot(row, x.data + t * x.stride, matrix.cols);
          }
        }
      },
      weights);
}

void multiply(const MatrixView& weights, const Batch& x, float* y, std::size_t y_stride) {
  constexpr std::size_t kRowsPerTask = 16;
  const std::size_t rows = rows_of(weights);
  const std::size_t tasks = (rows + kRowsPerTask - 1) / kRowsPerTask;
  parallel_for(tasks, [&](std::size_t task) {
    const std::size_t first = task * kRowsPerTask;
    const std::size_t count = std::min(kRowsPerTask, rows - first);
    multiply_serial(slice_rows(weights, first, count), x, y + first, y_stride);
  });
}

void accumulate_rows(const MatrixView& weights, const float* factors, float* sum) noexcept {
  std::visit([&](const auto& matrix) { accumulate(matrix, factors, sum); }, weights);
}

}  // namespace k3::kernels

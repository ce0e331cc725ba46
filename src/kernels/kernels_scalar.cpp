// The numeric contract in scalar code. Portable: std::fma is exact with or without an instruction.

#include <algorithm>
#include <array>
#include <cmath>

#include "base/float_bits.h"
#include "kernels/activation.h"
#include "kernels/elementary.h"
#include "kernels/isa.h"
#include "kernels/kda.h"
#include "kernels/products.h"

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
  std::array<float, kLanes / 2> s = {};
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

// The packed form is the batch itself, densely.
std::size_t packed_floats(std::size_t cols, std::size_t count) {
  return cols * count;
}

void pack(const Batch& x, std::size_t cols, std::size_t first, std::size_t last, float* packed) {
  for (std::size_t t = first; t < last; ++t) {
    std::copy_n(x.data + t * x.stride, cols, packed + t * cols);
  }
}

template <typename Matrix>
void multiply_rows(const Matrix& matrix, const float* packed, std::size_t count, const Outputs& y) {
  for (std::size_t r = 0; r < matrix.rows; ++r) {
    const auto row = row_of(matrix, r);
    for (std::size_t t = 0; t < count; ++t) {
      y.data[t * y.stride + r] = dot(row, packed + t * matrix.cols, matrix.cols);
    }
  }
}

template <typename Matrix>
void accumulate(const Matrix& matrix, const Batch& factors, const Outputs& sums) {
  for (std::size_t t = 0; t < factors.count; ++t) {
    float* sum = sums.data + t * sums.stride;
    for (std::size_t r = 0; r < matrix.rows; ++r) {
      const auto row = row_of(matrix, r);
      const float factor = factors.data[t * factors.stride + r];
      for (std::size_t c = 0; c < matrix.cols; ++c) {
        sum[c] = std::fma(factor, row(c), sum[c]);
      }
    }
  }
}

void exponentials(float* values, std::size_t count, float shift) {
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = exp_contract(values[i] - shift);
  }
}

void sigmoid(float* values, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = sigmoid_contract(values[i]);
  }
}

void tanh(float* values, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = tanh_contract(values[i]);
  }
}

void gate(const float* gate, std::size_t count, float* values) {
  for (std::size_t i = 0; i < count; ++i) {
    values[i] *= sigmoid_contract(gate[i]);
  }
}

void situ_glu_scalar(
    const float* gate, const float* up, const SituBetas& betas, std::size_t count, float* out) {
  for (std::size_t i = 0; i < count; ++i) {
    const float capped = betas.gate * tanh_contract(gate[i] / betas.gate);
    const float gated = capped * sigmoid_contract(gate[i]);
    const float linear = betas.linear * tanh_contract(up[i] / betas.linear);
    out[i] = gated * linear;
  }
}

void add_scaled_scalar(float weight, const float* value, std::size_t count, float* sum) {
  for (std::size_t i = 0; i < count; ++i) {
    sum[i] = std::fma(weight, value[i], sum[i]);
  }
}

// Products of two float32 are exact in double, so only the additions round.
double sum_of_products(const float* x, const float* y, std::size_t count) {
  double sum = 0.0;
  for (std::size_t i = 0; i < count; ++i) {
    sum += static_cast<double>(x[i]) * static_cast<double>(y[i]);
  }
  return sum;
}

void row_sums(const RowList& list, double* sums) {
  for (std::size_t r = 0; r < list.count; ++r) {
    double sum = 0.0;
    for (std::size_t i = 0; i < list.width; ++i) {
      sum += static_cast<double>(list.rows[r][i]);
    }
    sums[r] = sum;
  }
}

void square_sums(const RowList& list, double* sums) {
  for (std::size_t r = 0; r < list.count; ++r) {
    sums[r] = sum_of_products(list.rows[r], list.rows[r], list.width);
  }
}

void score_sums(const RowList& list, const float* weight, double* squares, double* products) {
  for (std::size_t r = 0; r < list.count; ++r) {
    squares[r] = sum_of_products(list.rows[r], list.rows[r], list.width);
    products[r] = sum_of_products(list.rows[r], weight, list.width);
  }
}

void scale_by_gain(const float* x, const float* gain, float scale, std::size_t count, float* out) {
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = gain[i] * (x[i] * scale);
  }
}

// Inputs that tap j sees: from the tail where they precede the first token.
const float* under_tap(const ShortConv& conv, const ConvPart& part, std::size_t j) {
  const std::size_t index = part.token + j;  // counted from the oldest row of the tail
  const std::size_t past = conv.kernel - 1;
  return index < past ? part.tail + index * conv.channels
                      : part.in + (index - past) * conv.channels;
}

void convolve(const ShortConv& conv, const ConvPart& part, float* out) {
  std::fill(out + part.first, out + part.last, 0.0F);
  for (std::size_t j = 0; j < conv.kernel; ++j) {
    const float* taps = conv.taps + j * conv.channels;
    const float* input = under_tap(conv, part, j);
    for (std::size_t c = part.first; c < part.last; ++c) {
      out[c] = std::fma(taps[c], input[c], out[c]);
    }
  }
  for (std::size_t c = part.first; c < part.last; ++c) {
    out[c] = silu_contract(out[c]);
  }
}

void kda_decay_scalar(const DecayGate& gate, float* z) {
  for (std::size_t h = 0; h < gate.heads; ++h) {
    for (std::size_t i = h * gate.width; i < (h + 1) * gate.width; ++i) {
      const float g = gate.lower_bound * sigmoid_contract(gate.rate[h] * (z[i] + gate.bias[i]));
      z[i] = exp_contract(g);
    }
  }
}

// Value columns are independent: each sums over the key rows in order.
void kda_step_scalar(const KdaStep& step, std::size_t width, float* state, float* out) {
  for (std::size_t j = 0; j < width; ++j) {
    float* column = state + j;
    float answer = 0.0F;
    for (std::size_t i = 0; i < width; ++i) {
      column[i * width] *= step.alpha[i];
      answer = std::fma(step.k[i], column[i * width], answer);
    }
    const float update = step.beta * (step.v[j] - answer);
    float sum = 0.0F;
    for (std::size_t i = 0; i < width; ++i) {
      column[i * width] = std::fma(step.k[i], update, column[i * width]);
      sum = std::fma(step.q[i], column[i * width], sum);
    }
    out[j] = sum;
  }
}

template <typename Matrix>
constexpr ProductKernels<Matrix> product_kernels() {
  return {packed_floats, pack, multiply_rows<Matrix>};
}

}  // namespace

const KernelTable& scalar_table() {
  static constexpr KernelTable kTable = {
      .name = "scalar",
      .bf16 = product_kernels<Bf16Matrix>(),
      .f32 = product_kernels<F32Matrix>(),
      .mxfp4 = product_kernels<Mxfp4Matrix>(),
      .accumulate_bf16 = accumulate<Bf16Matrix>,
      .accumulate_f32 = accumulate<F32Matrix>,
      .exponentials = exponentials,
      .sigmoid = sigmoid,
      .tanh = tanh,
      .gate = gate,
      .situ_glu = situ_glu_scalar,
      .add_scaled = add_scaled_scalar,
      .row_sums = row_sums,
      .square_sums = square_sums,
      .score_sums = score_sums,
      .scale_by_gain = scale_by_gain,
      .convolve = convolve,
      .kda_decay = kda_decay_scalar,
      .kda_step = kda_step_scalar,
  };
  return kTable;
}

}  // namespace k3::kernels

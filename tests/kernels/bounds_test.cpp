// No kernel reads or writes a byte beyond the arrays that it is given: each of them begins or ends at
// a page that cannot be accessed.

#include <algorithm>
#include <array>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/activation.h"
#include "kernels/isa.h"
#include "kernels/kda.h"
#include "support/guarded_buffer.h"
#include "support/kernel_tables.h"
#include "support/numbers.h"

namespace k3::kernels {
namespace {

using test::Border;
using Floats = test::GuardedBuffer<float>;

std::vector<const KernelTable*> all_tables() {
  std::vector<const KernelTable*> tables = test::tables_to_compare();
  tables.push_back(&scalar_table());
  return tables;
}

using TableAndBorder = std::tuple<const KernelTable*, Border>;

class Bounds : public testing::TestWithParam<TableAndBorder> {
 protected:
  static const KernelTable& table() { return *std::get<0>(GetParam()); }

  static Border border() { return std::get<1>(GetParam()); }

  static Floats values(std::size_t count) {
    return {std::span<const float>(test::normal_values(count, 1)), border()};
  }
};

// 0 to 70, and widths of one and several sum blocks, with and without a rest.
std::vector<std::size_t> widths() {
  std::vector<std::size_t> all;
  for (std::size_t n = 0; n <= 70; ++n) {
    all.push_back(n);
  }
  all.insert(all.end(), {96, 512, 544, 1023, 1024, 1025, 1056, 2080});
  return all;
}

// Elements of a matrix whose last row ends with its last column.
std::size_t extent(std::size_t rows, std::size_t stride, std::size_t last_row) {
  return rows == 0 ? 0 : (rows - 1) * stride + last_row;
}

struct Shape {
  std::size_t rows;
  std::size_t cols;
  std::size_t gap;  // elements between rows
};

template <typename Matrix>
void run_product(const ProductKernels<Matrix>& k,
                 const Matrix& m,
                 std::size_t count,
                 Border border) {
  const std::size_t x_stride = m.cols + 3;
  const Floats x(test::normal_values(extent(count, x_stride, m.cols), 2), border);
  const Floats packed(k.packed_floats(m.cols, count), border);
  const Batch batch{x.data(), count, x_stride};
  for (std::size_t first = 0; first < count; first += kPackGrain) {
    k.pack(batch, m.cols, first, std::min(count, first + kPackGrain), packed.data());
  }
  const std::size_t y_stride = m.rows + 5;
  const Floats y(extent(count, y_stride, m.rows), border);
  k.multiply(m, packed.data(), count, {y.data(), y_stride});
}

template <typename Matrix>
void run_accumulate(AccumulateKernel<Matrix> kernel,
                    const Matrix& m,
                    std::size_t count,
                    Border border) {
  const std::size_t factor_stride = m.rows + 3;
  const std::size_t sum_stride = m.cols + 5;
  const Floats factors(test::normal_values(extent(count, factor_stride, m.rows), 3), border);
  const Floats sums(extent(count, sum_stride, m.cols), border);
  kernel(m, {factors.data(), count, factor_stride}, {sums.data(), sum_stride});
}

void run_matrices(const KernelTable& table, const Shape& s, std::size_t count, Border border) {
  const std::size_t stride = s.cols + s.gap;
  const auto floats = test::normal_values(extent(s.rows, stride, s.cols), 4);
  const Floats f32(floats, border);
  const test::GuardedBuffer<std::uint16_t> bf16(test::to_bf16(floats), border);
  const std::size_t code_bytes = (s.cols + 1) / 2;
  const std::size_t scale_bytes = (s.cols + kMxfp4Group - 1) / kMxfp4Group;
  const test::GuardedBuffer<std::uint8_t> codes(
      test::random_bytes(extent(s.rows, code_bytes + s.gap, code_bytes), 5), border);
  const test::GuardedBuffer<std::uint8_t> scales(
      std::vector<std::uint8_t>(extent(s.rows, scale_bytes + s.gap, scale_bytes), 120), border);
  const F32Matrix f32_matrix{f32.data(), s.rows, s.cols, stride};
  const Bf16Matrix bf16_matrix{bf16.data(), s.rows, s.cols, stride};
  run_product(table.f32, f32_matrix, count, border);
  run_product(table.bf16, bf16_matrix, count, border);
  run_product(table.mxfp4,
              Mxfp4Matrix{codes.data(), scales.data(), s.rows, s.cols, code_bytes + s.gap,
                          scale_bytes + s.gap},
              count, border);
  run_accumulate(table.accumulate_f32, f32_matrix, count, border);
  run_accumulate(table.accumulate_bf16, bf16_matrix, count, border);
}

TEST_P(Bounds, MatricesOfEveryWidth) {
  for (const std::size_t cols : widths()) {
    for (const std::size_t count : {1U, 2U, 9U}) {
      SCOPED_TRACE(std::to_string(cols) + " columns, " + std::to_string(count) + " vectors");
      run_matrices(table(), {.rows = 7, .cols = cols, .gap = 0}, count, border());
      run_matrices(table(), {.rows = 7, .cols = cols, .gap = 7}, count, border());
    }
  }
}

TEST_P(Bounds, MatricesOfEveryNumberOfRowsAndVectors) {
  for (const std::size_t cols : {64U, 1056U}) {
    for (const std::size_t rows : {0U, 1U, 2U, 3U, 4U, 5U, 6U, 8U, 13U, 48U, 49U, 101U}) {
      for (const std::size_t count : {0U, 1U, 3U, 8U, 31U, 32U, 33U, 70U}) {
        SCOPED_TRACE(std::to_string(rows) + " rows, " + std::to_string(count) + " vectors");
        run_matrices(table(), {.rows = rows, .cols = cols, .gap = 0}, count, border());
      }
    }
  }
}

TEST_P(Bounds, ElementwiseStages) {
  for (const std::size_t n : widths()) {
    const Floats a = values(n);
    const Floats b = values(n);
    const Floats c = values(n);
    table().exponentials(a.data(), n, 1.0F);
    table().sigmoid(a.data(), n);
    table().tanh(a.data(), n);
    table().gate(a.data(), n, b.data());
    table().situ_glu(a.data(), b.data(), {4.0F, 25.0F}, n, c.data());
    table().add_scaled(0.5F, a.data(), n, b.data());
    table().scale_by_gain(a.data(), b.data(), 0.5F, n, c.data());
    const std::array<float, 2> rates = {0.5F, 2.0F};
    const Floats rate(rates, border());
    const Floats bias = values(2 * n);
    const Floats z = values(2 * n);
    table().kda_decay({2, n, rate.data(), bias.data(), -5.0F}, z.data());
  }
}

TEST_P(Bounds, SumsOfEveryNumberOfRows) {
  for (const std::size_t n : widths()) {
    const Floats weight = values(n);
    const Floats all = values(n);
    for (std::size_t count = 1; count <= kSumRows; ++count) {
      const std::vector<const float*> same(count, all.data());
      const test::GuardedBuffer<const float*> rows(same, border());
      const test::GuardedBuffer<double> squares(count, border());
      const test::GuardedBuffer<double> products(count, border());
      const RowList list{rows.data(), count, n};
      table().row_sums(list, squares.data());
      table().square_sums(list, squares.data());
      table().score_sums(list, weight.data(), squares.data(), products.data());
    }
  }
}

TEST_P(Bounds, Convolutions) {
  for (const std::size_t channels : widths()) {
    for (const std::size_t kernel : {1U, 4U}) {
      const Floats taps = values(kernel * channels);
      const Floats tail = values((kernel - 1) * channels);
      const Floats in = values(5 * channels);
      const Floats out = values(channels);
      for (std::size_t token = 0; token < 5; ++token) {
        table().convolve({kernel, channels, taps.data()},
                         {in.data(), tail.data(), token, channels / 3, channels}, out.data());
      }
    }
  }
}

TEST_P(Bounds, KdaSteps) {
  for (std::size_t width = 1; width <= 160; width += width < 70 ? 1 : 29) {
    const Floats q = values(width);
    const Floats k = values(width);
    const Floats v = values(width);
    const Floats alpha = values(width);
    const Floats state = values(width * width);
    const Floats out = values(width);
    table().kda_step({q.data(), k.data(), v.data(), alpha.data(), 0.5F}, width, state.data(),
                     out.data());
  }
}

INSTANTIATE_TEST_SUITE_P(Isa,
                         Bounds,
                         testing::Combine(testing::ValuesIn(all_tables()),
                                          testing::Values(Border::kBegin, Border::kEnd)),
                         [](const testing::TestParamInfo<TableAndBorder>& parameter) {
                           return std::string(std::get<0>(parameter.param)->name) +
                                  (std::get<1>(parameter.param) == Border::kEnd ? "End" : "Begin");
                         });

// What the tests above rest on. A sanitizer's handler may end the process in a way of its own.
TEST(GuardedBufferDeathTest, AnElementBeyondEitherEndIsFatal) {
  const Floats at_end(5, Border::kEnd);
  const Floats at_begin(5, Border::kBegin);
  const auto read = [](const volatile float* p) { static_cast<void>(*p); };
  read(at_end.data() + 4);
  read(at_begin.data());
  EXPECT_DEATH(read(at_end.data() + 5), "");
  EXPECT_DEATH(read(at_begin.data() - 1), "");
  EXPECT_DEATH(read(Floats(0, Border::kEnd).data()), "");
}

}  // namespace
}  // namespace k3::kernels

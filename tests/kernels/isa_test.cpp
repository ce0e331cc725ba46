// Every kernel of every instruction set against the scalar contract, bit for bit.
// Over 400 lines because every kernel has its test here.

#include "kernels/isa.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "k3/errors.h"

#include "base/aligned_buffer.h"
#include "kernels/activation.h"
#include "kernels/kda.h"
#include "support/kernel_tables.h"
#include "support/numbers.h"

namespace k3::kernels {
namespace {

using test::same_bits;

// 0 to 70, the widths of the small models, and those of the release.
std::vector<std::size_t> lengths() {
  std::vector<std::size_t> all;
  for (std::size_t n = 0; n <= 70; ++n) {
    all.push_back(n);
  }
  all.insert(all.end(), {96, 128, 152, 512, 576, 1023, 1024, 1025, 1536, 2080, 3072, 3584, 7168,
                         12288, 33792});
  return all;
}

// The tables to compare with scalar: those of this machine, and AVX-512 emulated where it can be.
class EveryTable : public testing::TestWithParam<const KernelTable*> {
 protected:
  static const KernelTable& table() { return *GetParam(); }
};

// `values` from an address that is `shift` floats off a cache line.
class Shifted {
 public:
  Shifted(const std::vector<float>& values, std::size_t shift)
      : buffer_(values.size() + 16), shift_(shift) {
    std::copy(values.begin(), values.end(), data());
  }

  float* data() { return buffer_.data() + shift_; }

 private:
  AlignedBuffer<float> buffer_;
  std::size_t shift_;
};

template <typename Matrix>
std::vector<float> run_product(const ProductKernels<Matrix>& k, const Matrix& m, const Batch& x) {
  AlignedBuffer<float> packed(k.packed_floats(m.cols, x.count));
  for (std::size_t first = 0; first < x.count; first += kPackGrain) {
    k.pack(x, m.cols, first, std::min(x.count, first + kPackGrain), packed.data());
  }
  std::vector<float> y(x.count * m.rows, -1.0F);
  k.multiply(m, packed.data(), x.count, {y.data(), m.rows});
  return y;
}

// A matrix of each type with `rows` rows from rough weights, at odd addresses of their type.
struct Weights {
  Weights(std::size_t rows, std::size_t cols, unsigned seed)
      : floats(test::rough_values(rows * cols + 1, seed)),
        halves(test::to_bf16(floats)),
        packed(test::random_bytes(rows * ((cols + 1) / 2) + 1, seed)),
        scales(test::random_bytes(rows * ((cols + 31) / 32) + 1, seed + 1)),
        f32{floats.data() + 1, rows, cols, cols},
        bf16{halves.data() + 1, rows, cols, cols},
        mxfp4{packed.data() + 1, scales.data() + 1, rows, cols, (cols + 1) / 2, (cols + 31) / 32} {
    for (std::size_t i = 0; i < scales.size(); ++i) {
      constexpr std::uint8_t kEdges[] = {0, 1, 255, 126, 2};
      // Mostly scales of the release; 253 and 254 overflow and are tested on their own.
      scales[i] = i % 9 == 0 ? kEdges[i / 9 % 5] : static_cast<std::uint8_t>(117 + scales[i] % 5);
    }
    // Denormal bf16 of both signs: what rough_values() makes denormal is below the least of them.
    for (std::size_t i = 3; i < halves.size(); i += 11) {
      halves[i] = static_cast<std::uint16_t>((i % 2 == 0 ? 0x8000U : 0U) | (1U + i % 127U));
    }
  }

  std::vector<float> floats;
  std::vector<std::uint16_t> halves;
  std::vector<std::uint8_t> packed, scales;
  F32Matrix f32;
  Bf16Matrix bf16;
  Mxfp4Matrix mxfp4;
};

void expect_products(const KernelTable& table,
                     const Weights& w,
                     const Batch& x,
                     const std::string& where) {
  const KernelTable& scalar = scalar_table();
  EXPECT_TRUE(same_bits(run_product(table.bf16, w.bf16, x), run_product(scalar.bf16, w.bf16, x)))
      << "bf16, " << where;
  EXPECT_TRUE(same_bits(run_product(table.f32, w.f32, x), run_product(scalar.f32, w.f32, x)))
      << "f32, " << where;
  EXPECT_TRUE(
      same_bits(run_product(table.mxfp4, w.mxfp4, x), run_product(scalar.mxfp4, w.mxfp4, x)))
      << "mxfp4, " << where;
}

TEST_P(EveryTable, ProductsOfEveryLength) {
  for (const std::size_t cols : lengths()) {
    const Weights w(7, cols, static_cast<unsigned>(cols));
    for (const std::size_t count : {1U, 2U, 5U}) {
      Shifted x(test::rough_values(count * cols, 2), cols % 16);
      expect_products(table(), w, {x.data(), count, cols},
                      std::to_string(cols) + " columns, " + std::to_string(count) + " vectors");
    }
  }
}

TEST_P(EveryTable, ProductsOfEveryBatchSize) {
  for (const std::size_t count :
       {1U, 2U, 3U, 4U, 6U, 7U, 8U, 31U, 32U, 33U, 64U, 70U, 130U, 192U, 333U, 512U}) {
    const Weights w(13, 1120, static_cast<unsigned>(count));
    const std::vector<float> x = test::rough_values(count * 1120, 3);
    expect_products(table(), w, {x.data(), count, 1120}, std::to_string(count) + " vectors");
  }
}

// One vector in streams, few decoded in registers, many through a scratch (wide rows) and folded
// together.
TEST_P(EveryTable, ProductsOfEveryNumberOfRows) {
  for (const std::size_t cols : {96U, 1056U}) {
    const std::vector<float> x = test::rough_values(9 * cols, 4);
    for (std::size_t rows = 1; rows <= 100; rows += rows < 14 ? 1 : 11) {
      const Weights w(rows, cols, static_cast<unsigned>(rows));
      for (const std::size_t count : {1U, 5U, 9U}) {
        expect_products(table(), w, {x.data(), count, cols},
                        std::to_string(rows) + " rows, " + std::to_string(cols) + " columns, " +
                            std::to_string(count) + " vectors");
      }
    }
  }
}

// A vector's result must not depend on its place in the batch or on its neighbours.
TEST_P(EveryTable, EveryPlaceInABatchGivesTheSameBits) {
  constexpr std::size_t kCols = 2080;
  const Weights w(11, kCols, 5);
  const std::vector<float> x = test::rough_values(kCols, 6);
  const auto expect_places = [&](const auto& kernels, const auto& matrix, const char* type) {
    const std::vector<float> alone = run_product(kernels, matrix, {x.data(), 1, kCols});
    for (const std::size_t place : {0U, 1U, 3U, 17U, 31U, 32U, 39U}) {
      std::vector<float> batch = test::rough_values(40 * kCols, 7);
      std::ranges::copy(x, batch.begin() + static_cast<std::ptrdiff_t>(place * kCols));
      const std::vector<float> y = run_product(kernels, matrix, {batch.data(), 40, kCols});
      EXPECT_TRUE(same_bits(std::span(y).subspan(place * 11, 11), alone)) << type << place;
    }
  };
  expect_places(table().bf16, w.bf16, "bf16, ");
  expect_places(table().f32, w.f32, "f32, ");
  expect_places(table().mxfp4, w.mxfp4, "mxfp4, ");
}

// Vectors and rows that lie apart, what is between them being NaN.
TEST_P(EveryTable, ProductsOfStridedVectorsAndRows) {
  constexpr std::size_t kRows = 6;
  constexpr std::size_t kStride = 200;
  for (const std::size_t cols : {33U, 128U}) {
    const Weights w(kRows, cols, 8);
    std::vector<float> rows(kRows * kStride, std::numeric_limits<float>::quiet_NaN());
    std::vector<std::uint16_t> halves(rows.size(), 0x7FC0U);
    for (std::size_t r = 0; r < kRows; ++r) {
      std::copy_n(w.f32.data + r * cols, cols, rows.data() + r * kStride);
      std::copy_n(w.bf16.data + r * cols, cols, halves.data() + r * kStride);
    }
    for (const std::size_t count : {1U, 3U, 9U}) {
      const std::vector<float> dense = test::rough_values(count * cols, 9);
      std::vector<float> apart(count * kStride, std::numeric_limits<float>::quiet_NaN());
      for (std::size_t t = 0; t < count; ++t) {
        std::copy_n(dense.data() + t * cols, cols, apart.data() + t * kStride);
      }
      const Batch near{dense.data(), count, cols};
      const Batch far{apart.data(), count, kStride};
      EXPECT_TRUE(same_bits(run_product(table().f32, {rows.data(), kRows, cols, kStride}, far),
                            run_product(scalar_table().f32, w.f32, near)));
      EXPECT_TRUE(same_bits(run_product(table().bf16, {halves.data(), kRows, cols, kStride}, far),
                            run_product(scalar_table().bf16, w.bf16, near)));
      EXPECT_TRUE(same_bits(run_product(table().mxfp4, w.mxfp4, far),
                            run_product(scalar_table().mxfp4, w.mxfp4, near)));
    }
  }
}

// Codes that overflow at the largest scales are left out: all outputs are finite.
TEST_P(EveryTable, Mxfp4ProductsAtEveryScale) {
  for (unsigned scale = 0; scale < 256; ++scale) {
    Weights w(5, 96, 8 + scale);
    std::fill(w.scales.begin(), w.scales.end(), static_cast<std::uint8_t>(scale));
    const unsigned codes = scale == 253 || scale == 254 ? 0xBBU : 0xFFU;  // up to 1.5
    for (std::uint8_t& byte : w.packed) {
      byte = static_cast<std::uint8_t>(byte & codes);
    }
    const std::vector<float> x = test::normal_values(9 * 96, 9, 0x1p-20F);
    for (const std::size_t count : {1U, 3U, 9U}) {
      const Batch batch{x.data(), count, 96};
      const std::vector<float> y = run_product(table().mxfp4, w.mxfp4, batch);
      EXPECT_TRUE(std::ranges::all_of(y, [](float v) { return std::isfinite(v); })) << scale;
      EXPECT_TRUE(same_bits(y, run_product(scalar_table().mxfp4, w.mxfp4, batch))) << scale;
    }
  }
}

// Codes and vectors without a sign: no difference of infinities, which would be NaN.
TEST_P(EveryTable, ScalesThatOverflowGiveInfinityWhereScalarDoes) {
  for (const unsigned scale : {253U, 254U}) {
    Weights w(6, 128, scale);
    std::fill(w.scales.begin(), w.scales.end(), static_cast<std::uint8_t>(scale));
    for (std::size_t i = 0; i < w.packed.size(); ++i) {
      w.packed[i] = i <= 64 ? 0x11U : static_cast<std::uint8_t>(w.packed[i] & 0x77U);
    }
    std::vector<float> x = test::normal_values(3 * 128, 9, 0x1p-20F);
    std::ranges::transform(x, x.begin(), [](float v) { return std::abs(v); });
    const Batch batch{x.data(), 3, 128};
    const std::vector<float> y = run_product(table().mxfp4, w.mxfp4, batch);
    EXPECT_TRUE(same_bits(y, run_product(scalar_table().mxfp4, w.mxfp4, batch)));
    EXPECT_TRUE(std::isfinite(y[0]));  // the first row has the code of 0.5 alone
    EXPECT_TRUE(std::ranges::all_of(y, [](float v) { return v == v; }));
    EXPECT_TRUE(std::isinf(y[1]));
  }
}

TEST_P(EveryTable, SumsOverRowsOfEveryLength) {
  for (const std::size_t cols : lengths()) {
    const Weights w(9, cols, static_cast<unsigned>(cols));
    for (const std::size_t count : {1U, 2U, 7U}) {
      const std::vector<float> factors = test::rough_values(count * 9, 10);
      const std::vector<float> start = test::rough_values(count * cols, 11);
      const Batch batch{factors.data(), count, 9};
      std::vector<float> found = start;
      std::vector<float> expected = start;
      table().accumulate_bf16(w.bf16, batch, {found.data(), cols});
      scalar_table().accumulate_bf16(w.bf16, batch, {expected.data(), cols});
      EXPECT_TRUE(same_bits(found, expected)) << "bf16, " << cols << " columns";
      table().accumulate_f32(w.f32, batch, {found.data(), cols});
      scalar_table().accumulate_f32(w.f32, batch, {expected.data(), cols});
      EXPECT_TRUE(same_bits(found, expected)) << "f32, " << cols << " columns";
    }
  }
}

using Stage = std::function<void(const KernelTable&, std::vector<float>&)>;

// Runs a stage on the same values with both tables.
void expect_stage(const KernelTable& table,
                  const Stage& stage,
                  const std::vector<float>& values,
                  const std::string& name) {
  std::vector<float> found = values;
  std::vector<float> expected = values;
  stage(table, found);
  stage(scalar_table(), expected);
  EXPECT_TRUE(same_bits(found, expected)) << name << ", " << values.size() << " values";
}

TEST_P(EveryTable, ElementwiseStagesOfEveryLength) {
  for (const std::size_t n : lengths()) {
    const std::vector<float> values = test::rough_values(n, static_cast<unsigned>(n));
    const std::vector<float> other = test::rough_values(n, static_cast<unsigned>(n) + 1);
    expect_stage(
        table(),
        [](const KernelTable& t, std::vector<float>& v) {
          t.exponentials(v.data(), v.size(), 2.5F);
        },
        values, "exp");
    expect_stage(
        table(), [](const KernelTable& t, std::vector<float>& v) { t.sigmoid(v.data(), v.size()); },
        values, "sigmoid");
    expect_stage(
        table(), [](const KernelTable& t, std::vector<float>& v) { t.tanh(v.data(), v.size()); },
        values, "tanh");
    expect_stage(
        table(),
        [&](const KernelTable& t, std::vector<float>& v) {
          t.gate(other.data(), v.size(), v.data());
        },
        values, "gate");
    expect_stage(
        table(),
        [&](const KernelTable& t, std::vector<float>& v) {
          t.situ_glu(other.data(), v.data(), {4.0F, 25.0F}, v.size(), v.data());
        },
        values, "situ_glu");
    expect_stage(
        table(),
        [&](const KernelTable& t, std::vector<float>& v) {
          t.add_scaled(0.3F, other.data(), v.size(), v.data());
        },
        values, "add_scaled");
    expect_stage(
        table(),
        [&](const KernelTable& t, std::vector<float>& v) {
          t.scale_by_gain(v.data(), other.data(), 0.3F, v.size(), v.data());
        },
        values, "scale_by_gain");
  }
}

// Sums of `count` rows, each from an address of its own.
void expect_sums(const KernelTable& table, std::size_t count, std::size_t width) {
  const std::vector<float> weight = test::rough_values(width, 22);
  std::vector<std::vector<float>> values;
  std::vector<const float*> rows;
  for (std::size_t r = 0; r < count; ++r) {
    values.push_back(test::rough_values(width + r, static_cast<unsigned>(width + r)));
    rows.push_back(values.back().data() + r);
  }
  const RowList list{rows.data(), count, width};
  const auto sums = [&](const KernelTable& t) {
    std::vector<double> all(4 * count + 1, -1.0);  // the last one is nobody's
    t.row_sums(list, all.data());
    t.square_sums(list, all.data() + count);
    t.score_sums(list, weight.data(), all.data() + 2 * count, all.data() + 3 * count);
    return all;
  };
  const std::vector<double> found = sums(table);
  const std::vector<double> expected = sums(scalar_table());
  EXPECT_EQ(std::memcmp(found.data(), expected.data(), found.size() * sizeof(double)), 0)
      << count << " rows of " << width;
}

TEST_P(EveryTable, OrderedSumsOfEveryNumberAndLength) {
  for (const std::size_t width : lengths()) {
    for (std::size_t count = 1; count <= kSumRows; ++count) {
      expect_sums(table(), count, width);
    }
  }
}

// Every address modulo a cache line for what is read and for what is written.
TEST_P(EveryTable, ElementwiseStagesAtEveryAlignment) {
  constexpr std::size_t kCount = 83;
  const std::vector<float> values = test::rough_values(kCount, 23);
  const std::vector<float> others = test::rough_values(kCount, 24);
  using At = std::function<void(const KernelTable&, const float*, float*)>;
  const std::vector<At> stages = {
      [](const KernelTable& t, const float*, float* v) { t.exponentials(v, kCount, 2.5F); },
      [](const KernelTable& t, const float*, float* v) { t.sigmoid(v, kCount); },
      [](const KernelTable& t, const float*, float* v) { t.tanh(v, kCount); },
      [](const KernelTable& t, const float* o, float* v) { t.gate(o, kCount, v); },
      [](const KernelTable& t, const float* o, float* v) {
        t.situ_glu(o, v, {4.0F, 25.0F}, kCount, v);
      },
      [](const KernelTable& t, const float* o, float* v) { t.add_scaled(0.3F, o, kCount, v); },
      [](const KernelTable& t, const float* o, float* v) {
        t.scale_by_gain(v, o, 0.3F, kCount, v);
      },
  };
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    std::vector<float> expected = values;
    stages[stage](scalar_table(), others.data(), expected.data());
    for (std::size_t shift = 0; shift < 16; ++shift) {
      for (const std::size_t other_shift : {shift, (shift + 5) % 16}) {
        Shifted found(values, shift);
        Shifted other(others, other_shift);
        stages[stage](table(), other.data(), found.data());
        EXPECT_TRUE(same_bits(std::span<const float>(found.data(), kCount), expected))
            << "stage " << stage << ", " << shift << " and " << other_shift << " floats off";
      }
    }
  }
}

TEST_P(EveryTable, ProductsAtEveryAlignment) {
  constexpr std::size_t kRows = 6;
  constexpr std::size_t kCols = 161;
  const std::vector<float> dense = test::rough_values(kRows * kCols, 25);
  const std::vector<std::uint16_t> half = test::to_bf16(dense);
  const std::vector<float> x = test::rough_values(9 * kCols, 26);
  for (std::size_t shift = 0; shift < 64; ++shift) {
    Shifted floats(dense, shift % 16);
    Shifted vectors(x, (shift + shift / 16) % 16);
    AlignedBuffer<std::uint16_t> halves(half.size() + 32);
    std::ranges::copy(half, halves.data() + shift % 32);
    Weights nibbles(kRows, kCols, 27);
    AlignedBuffer<std::uint8_t> packed(nibbles.packed.size() + 64);
    std::ranges::copy(nibbles.packed, packed.data() + shift);
    Mxfp4Matrix mxfp4 = nibbles.mxfp4;
    mxfp4.packed = packed.data() + shift + 1;
    for (const std::size_t count : {1U, 9U}) {
      const Batch moved{vectors.data(), count, kCols};
      const Batch still{x.data(), count, kCols};
      EXPECT_TRUE(
          same_bits(run_product(table().f32, {floats.data(), kRows, kCols, kCols}, moved),
                    run_product(scalar_table().f32, {dense.data(), kRows, kCols, kCols}, still)))
          << shift;
      EXPECT_TRUE(same_bits(
          run_product(table().bf16, {halves.data() + shift % 32, kRows, kCols, kCols}, moved),
          run_product(scalar_table().bf16, {half.data(), kRows, kCols, kCols}, still)))
          << shift;
      EXPECT_TRUE(same_bits(run_product(table().mxfp4, mxfp4, moved),
                            run_product(scalar_table().mxfp4, nibbles.mxfp4, still)))
          << shift;
    }
  }
}

// Five tokens, so that the taps reach into the tail, wholly and in part.
void expect_convolution(const KernelTable& table, std::size_t channels, std::size_t kernel) {
  const std::vector<float> taps = test::normal_values(kernel * channels, 12);
  const std::vector<float> tail = test::rough_values((kernel - 1) * channels, 13);
  const std::vector<float> in = test::rough_values(5 * channels, 14);
  const ShortConv conv{kernel, channels, taps.data()};
  for (std::size_t token = 0; token < 5; ++token) {
    const ConvPart part{in.data(), tail.data(), token, channels / 3, channels - channels / 4};
    const Stage stage = [&](const KernelTable& t, std::vector<float>& v) {
      t.convolve(conv, part, v.data());
    };
    expect_stage(table, stage, std::vector<float>(channels, 7.0F), "convolve");
  }
}

TEST_P(EveryTable, ConvolutionsOfEveryWidthAndRange) {
  for (const std::size_t channels : {1U, 7U, 8U, 19U, 33U, 64U, 70U, 152U}) {
    for (const std::size_t kernel : {1U, 2U, 3U, 4U}) {
      expect_convolution(table(), channels, kernel);
    }
  }
}

TEST_P(EveryTable, KdaOfEveryWidth) {
  for (std::size_t width = 1; width <= 160; width += width < 70 ? 1 : 29) {
    const std::vector<float> q = test::normal_values(width, 15);
    const std::vector<float> k = test::rough_values(width, 16);
    const std::vector<float> v = test::rough_values(width, 17);
    const std::vector<float> alpha = test::normal_values(width, 18, 0.5F);
    const KdaStep step{q.data(), k.data(), v.data(), alpha.data(), 0.7F};
    expect_stage(
        table(),
        [&](const KernelTable& t, std::vector<float>& s) {
          t.kda_step(step, width, s.data(), s.data() + width * width);
        },
        test::rough_values(width * width + width, 19), "kda_step");
    const std::vector<float> bias = test::normal_values(3 * width, 20);
    const std::vector<float> rate = {0.5F, 2.0F, 8.0F};
    const DecayGate gate{3, width, rate.data(), bias.data(), -5.0F};
    expect_stage(
        table(), [&](const KernelTable& t, std::vector<float>& z) { t.kda_decay(gate, z.data()); },
        test::normal_values(3 * width, 21, 4.0F), "kda_decay");
  }
}

TEST_P(EveryTable, NanGoesThroughEveryElementaryFunction) {
  std::vector<float> values(20, std::numeric_limits<float>::quiet_NaN());
  table().exponentials(values.data(), values.size(), 0.0F);
  EXPECT_TRUE(std::ranges::all_of(values, [](float v) { return v != v; }));
  table().sigmoid(values.data(), values.size());
  EXPECT_TRUE(std::ranges::all_of(values, [](float v) { return v != v; }));
  table().tanh(values.data(), values.size());
  EXPECT_TRUE(std::ranges::all_of(values, [](float v) { return v != v; }));
}

// Of finite values the bits, of NaN that it is NaN: its payload is no part of the contract.
void expect_same_or_nan(std::span<const float> found,
                        std::span<const float> expected,
                        const std::string& where) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (std::isnan(expected[i])) {
      EXPECT_TRUE(std::isnan(found[i])) << where << ", output " << i;
    } else {
      EXPECT_TRUE(same_bits(found.subspan(i, 1), expected.subspan(i, 1)))
          << where << ", output " << i << ": " << found[i] << ", expected " << expected[i];
    }
  }
}

// In every lane and in the rest that fills no vector, of the first, a middle and the last vector.
TEST_P(EveryTable, InfinityAndNanGoThroughProductsAsThroughScalar) {
  constexpr std::size_t kCols = 77;
  Weights w(7, kCols, 28);
  for (std::size_t i = 0; i < w.scales.size(); ++i) {
    w.scales[i] = 120;
  }
  const float specials[] = {std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()};
  for (const std::size_t count : {1U, 3U, 9U}) {
    for (std::size_t place = 0; place < kCols; ++place) {
      std::vector<float> x = test::normal_values(count * kCols, 29);
      const float special = specials[place % 3];
      x[(place % count) * kCols + place] = special;
      const Batch batch{x.data(), count, kCols};
      const std::string where = std::to_string(special) + " at " + std::to_string(place) + " of " +
                                std::to_string(count) + " vectors, ";
      expect_same_or_nan(run_product(table().f32, w.f32, batch),
                         run_product(scalar_table().f32, w.f32, batch), where + "f32");
      expect_same_or_nan(run_product(table().bf16, w.bf16, batch),
                         run_product(scalar_table().bf16, w.bf16, batch), where + "bf16");
      expect_same_or_nan(run_product(table().mxfp4, w.mxfp4, batch),
                         run_product(scalar_table().mxfp4, w.mxfp4, batch), where + "mxfp4");
    }
  }
}

// In every lane and in the rest that fills no vector.
TEST_P(EveryTable, InfinityGoesThroughEveryElementaryFunctionAsThroughScalar) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kLargest = std::numeric_limits<float>::max();
  for (std::size_t place = 0; place < 37; ++place) {
    for (const float special : {kInfinity, -kInfinity, kLargest, -kLargest, 0.0F, -0.0F}) {
      std::vector<float> values = test::normal_values(37, 22);
      values[place] = special;
      expect_stage(
          table(),
          [](const KernelTable& t, std::vector<float>& v) {
            t.exponentials(v.data(), v.size(), 0.0F);
          },
          values, "exp");
      expect_stage(
          table(),
          [](const KernelTable& t, std::vector<float>& v) { t.sigmoid(v.data(), v.size()); },
          values, "sigmoid");
      expect_stage(
          table(), [](const KernelTable& t, std::vector<float>& v) { t.tanh(v.data(), v.size()); },
          values, "tanh");
    }
  }
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(EveryTable);
INSTANTIATE_TEST_SUITE_P(Isa,
                         EveryTable,
                         testing::ValuesIn(test::tables_to_compare()),
                         [](const testing::TestParamInfo<const KernelTable*>& parameter) {
                           return std::string(parameter.param->name);
                         });

TEST(IsaChoice, ScalarIsAlwaysThereAndFirst) {
  ASSERT_FALSE(supported_tables().empty());
  EXPECT_STREQ(supported_tables().front()->name, "scalar");
}

TEST(IsaChoice, AnUnknownNameIsRefusedWithTheChoices) {
  for (const char* name : {"", "AVX2", "avx", "sse4"}) {
    try {
      (void)table_of(name);
      FAIL() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
      EXPECT_NE(std::string(error.what()).find("scalar"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace k3::kernels

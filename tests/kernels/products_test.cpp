#include "kernels/products.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "base/aligned_buffer.h"
#include "base/float_bits.h"
#include "base/parallel.h"
#include "support/numbers.h"

namespace k3::kernels {
namespace {

using test::same_bits;

// The contract of docs/numerics.md, transcribed without looking at the kernel: lane by lane.
float contract_dot(const std::vector<float>& w, const float* x) {
  const std::size_t n = w.size();
  std::vector<float> totals(32, 0.0F);
  for (std::size_t lane = 0; lane < 32; ++lane) {
    for (std::size_t block = 0; block * 1024 < std::max<std::size_t>(n, 1); ++block) {
      float sum = 0.0F;
      for (std::size_t i = block * 1024 + lane; i < std::min(n, (block + 1) * 1024); i += 32) {
        sum = std::fma(w[i], x[i], sum);
      }
      totals[lane] = block == 0 ? sum : totals[lane] + sum;
    }
  }
  std::vector<float> s(16);
  for (std::size_t j = 0; j < 16; ++j) {
    s[j] = totals[2 * j] + totals[2 * j + 1];
  }
  const auto fold = [&s](std::size_t width) {
    for (std::size_t j = 0; j < width; ++j) {
      s[j] = s[j] + s[j + width];
    }
  };
  fold(8);
  fold(4);
  fold(2);
  return s[0] + s[1];
}

// A matrix in one storage type beside its exact values.
struct Sample {
  std::size_t rows = 0;
  std::size_t cols = 0;
  std::vector<float> values;  // exact
  std::vector<std::uint16_t> bf16;
  std::vector<std::uint8_t> packed;
  std::vector<std::uint8_t> scales;

  [[nodiscard]] MatrixView as_f32() const { return F32Matrix{values.data(), rows, cols, cols}; }

  [[nodiscard]] MatrixView as_bf16() const { return Bf16Matrix{bf16.data(), rows, cols, cols}; }

  [[nodiscard]] Mxfp4Matrix as_mxfp4() const {
    return {packed.data(), scales.data(), rows, cols, (cols + 1) / 2, (cols + 31) / 32};
  }
};

Sample bf16_sample(std::size_t rows, std::size_t cols, unsigned seed) {
  Sample s{.rows = rows, .cols = cols};
  s.bf16 = test::to_bf16(test::rough_values(rows * cols, seed));
  s.values.resize(s.bf16.size());
  std::transform(s.bf16.begin(), s.bf16.end(), s.values.begin(), bf16_to_float);
  return s;
}

// Scales from `scale_choices`, codes random among the bits of `codes`; values by the definition of numerics.md 7.
Sample mxfp4_sample(std::size_t rows,
                    std::size_t cols,
                    unsigned seed,
                    const std::vector<std::uint8_t>& scale_choices,
                    unsigned codes = 0xFF) {
  Sample s{.rows = rows, .cols = cols};
  s.packed = test::random_bytes(rows * ((cols + 1) / 2), seed);
  for (std::uint8_t& byte : s.packed) {
    byte = static_cast<std::uint8_t>(byte & codes);
  }
  s.scales = test::random_bytes(rows * ((cols + 31) / 32), seed + 1);
  for (std::uint8_t& scale : s.scales) {
    scale = scale_choices[scale % scale_choices.size()];
  }
  constexpr float kMagnitudes[] = {0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < cols; ++c) {
      const unsigned byte = s.packed[r * ((cols + 1) / 2) + c / 2];
      const unsigned code = c % 2 == 0 ? byte & 15U : byte >> 4;
      const int scale = s.scales[r * ((cols + 31) / 32) + c / 32];
      const float magnitude = std::ldexp(kMagnitudes[code & 7U], scale - 127);
      s.values.push_back(scale == 255 ? 0.0F : ((code & 8U) != 0 ? -magnitude : magnitude));
    }
  }
  s.bf16 = test::to_bf16(s.values);
  return s;
}

std::vector<float> product(const MatrixView& weights, const std::vector<float>& x) {
  const std::size_t tokens = x.size() / std::max<std::size_t>(cols_of(weights), 1);
  std::vector<float> y(tokens * rows_of(weights));
  AlignedBuffer<float> scratch(product_scratch_floats(cols_of(weights), tokens));
  multiply(weights, Batch{x.data(), tokens, cols_of(weights)}, scratch.data(),
           {y.data(), rows_of(weights)});
  return y;
}

std::vector<float> contract_product(const Sample& s, const std::vector<float>& x) {
  std::vector<float> y;
  for (std::size_t t = 0; t < x.size() / s.cols; ++t) {
    for (std::size_t r = 0; r < s.rows; ++r) {
      const auto row = s.values.begin() + static_cast<std::ptrdiff_t>(r * s.cols);
      y.push_back(
          contract_dot({row, row + static_cast<std::ptrdiff_t>(s.cols)}, x.data() + t * s.cols));
    }
  }
  return y;
}

constexpr std::size_t kLengths[] = {1,  2,  3,   31,  32,   33,   63,   64,   65,   70,
                                    96, 97, 152, 511, 1023, 1024, 1025, 2047, 2049, 3584};

TEST(Products, Bf16FollowsTheContract) {
  for (const std::size_t cols : kLengths) {
    const Sample s = bf16_sample(5, cols, 1);
    const std::vector<float> x = test::rough_values(3 * cols, 2);
    EXPECT_TRUE(same_bits(product(s.as_bf16(), x), contract_product(s, x))) << cols;
  }
}

TEST(Products, F32FollowsTheContract) {
  for (const std::size_t cols : kLengths) {
    Sample s{.rows = 5, .cols = cols};
    s.values = test::rough_values(5 * cols, 3);
    const std::vector<float> x = test::rough_values(3 * cols, 4);
    EXPECT_TRUE(same_bits(product(s.as_f32(), x), contract_product(s, x))) << cols;
  }
}

TEST(Products, Mxfp4FollowsTheContract) {
  for (const std::size_t cols : kLengths) {
    const Sample s = mxfp4_sample(5, cols, 5, {117, 118, 119, 120, 121});
    const std::vector<float> x = test::rough_values(3 * cols, 6);
    EXPECT_TRUE(same_bits(product(s.as_mxfp4(), x), contract_product(s, x))) << cols;
  }
}

// The largest scales overflow (254 from 2 on, 253 from 4 on), as exact multiplication in float32 does.
TEST(Products, Mxfp4ValuesAtEveryScaleAreExact) {
  for (unsigned scale = 0; scale < 256; ++scale) {
    const Sample s = mxfp4_sample(2, 64, 7 + scale, {static_cast<std::uint8_t>(scale)});
    for (std::size_t i = 0; i < s.values.size(); ++i) {
      const float found = mxfp4_value(s.as_mxfp4(), i / 64, i % 64);
      EXPECT_EQ(std::bit_cast<std::uint32_t>(found), std::bit_cast<std::uint32_t>(s.values[i]))
          << "scale " << scale << " element " << i;
    }
  }
}

TEST(Products, Mxfp4EqualsTheSameWeightsAsBf16AndF32) {
  for (const std::size_t cols : {31U, 64U, 70U, 1056U, 3072U}) {
    // Together, and the largest alone with codes that do not overflow: one infinity would make NaN of
    // most sums.
    for (const Sample& s :
         {mxfp4_sample(7, cols, 9, {0, 1, 100, 119, 121, 150, 252, 255}),
          mxfp4_sample(7, cols, 9, {0}), mxfp4_sample(7, cols, 9, {1}),
          mxfp4_sample(7, cols, 9, {253}, 0xBB), mxfp4_sample(7, cols, 9, {254}, 0xBB)}) {
      const std::vector<float> x = test::normal_values(2 * cols, 10, 0x1p-20F);
      const std::vector<float> y = product(s.as_mxfp4(), x);
      EXPECT_TRUE(std::all_of(y.begin(), y.end(), [](float v) { return std::isfinite(v); }));
      EXPECT_TRUE(same_bits(y, product(s.as_bf16(), x))) << cols;
      EXPECT_TRUE(same_bits(y, product(s.as_f32(), x))) << cols;
    }
  }
}

TEST(Products, Scale255MakesPlusZeroOfEveryCode) {
  const Sample s = mxfp4_sample(4, 96, 11, {255});
  const std::vector<float> x(96, -3.0F);
  for (const float y : product(s.as_mxfp4(), x)) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(y), 0U);  // fma(+0, -3, +0) is +0
  }
}

TEST(Products, SwappedNibblesWouldBeSeen) {
  Sample s = mxfp4_sample(4, 64, 12, {119});
  const std::vector<float> x = test::normal_values(64, 13);
  const std::vector<float> right = product(s.as_mxfp4(), x);
  for (std::uint8_t& byte : s.packed) {
    byte = static_cast<std::uint8_t>((byte << 4) | (byte >> 4));
  }
  EXPECT_FALSE(same_bits(right, product(s.as_mxfp4(), x)));
}

// One vector and batches of one and of several packs are split in ways of their own.
TEST(Products, ThreadsDoNotChangeBits) {
  const Sample s = mxfp4_sample(301, 1120, 14, {118, 120});
  const std::vector<float> floats = test::rough_values(301U * 1120U, 16);
  const F32Matrix f32{floats.data(), 301, 1120, 1120};
  for (const std::size_t count : {1U, 4U, 70U}) {
    const std::vector<float> x = test::normal_values(count * 1120, 15);
    for (const MatrixView& matrix :
         {MatrixView(s.as_bf16()), MatrixView(s.as_mxfp4()), MatrixView(f32)}) {
      const std::vector<float> expected = [&] {
        const test::ScopedThreads one(1);
        return product(matrix, x);
      }();
      for (const int threads : {2, 3, 7}) {
        const test::ScopedThreads scope(threads);
        EXPECT_TRUE(same_bits(product(matrix, x), expected)) << threads << ", " << count;
      }
    }
  }
}

// Tasks of 432 rows of 3,072 gave one of two threads an eighth more than its half.
TEST(Products, OneVectorIsSplitEvenly) {
  for (const std::size_t rows : {1536U, 3072U, 3584U, 6144U, 7168U, 12288U, 24576U, 33792U}) {
    for (const std::size_t threads : {1U, 2U, 3U, 4U, 6U, 8U, 16U}) {
      const std::size_t task = product_rows_per_task(rows, 1, threads);
      const std::size_t tasks = (rows + task - 1) / task;
      const std::size_t most = (tasks + threads - 1) / threads * task;  // of the static schedule
      EXPECT_LE(static_cast<double>(most * threads), 1.04 * static_cast<double>(rows))
          << rows << " rows, " << threads << " threads";
    }
  }
}

TEST(Products, AMatrixWithoutRowsDividesNothing) {
  const std::vector<float> x = test::normal_values(2 * 64, 15);
  AlignedBuffer<float> scratch(product_scratch_floats(64, 2));
  for (const std::size_t count : {1U, 2U}) {
    multiply(F32Matrix{x.data(), 0, 64, 64}, {x.data(), count, 64}, scratch.data(), {nullptr, 0});
  }
}

TEST(Products, ATokenDoesNotDependOnItsBatch) {
  const Sample s = mxfp4_sample(33, 1088, 16, {118, 120});
  const std::vector<float> x = test::rough_values(7 * 1088, 17);
  const std::vector<float> together = product(s.as_mxfp4(), x);
  for (std::size_t t = 0; t < 7; ++t) {
    const std::vector<float> alone(x.begin() + static_cast<std::ptrdiff_t>(t * 1088),
                                   x.begin() + static_cast<std::ptrdiff_t>((t + 1) * 1088));
    EXPECT_TRUE(same_bits(product(s.as_mxfp4(), alone), std::span(together).subspan(t * 33, 33)))
        << t;
  }
}

TEST(Products, RowSlicesAndStridesReadTheirOwnRows) {
  const Sample s = mxfp4_sample(9, 70, 18, {119});
  const std::vector<float> x = test::normal_values(70, 19);
  const std::vector<float> all = product(s.as_mxfp4(), x);
  EXPECT_TRUE(same_bits(product(slice_rows(MatrixView(s.as_mxfp4()), 4, 3), x),
                        std::span(all).subspan(4, 3)));
  // The left half of every row of a wider matrix.
  const Sample wide = bf16_sample(6, 128, 20);
  const MatrixView left = Bf16Matrix{wide.bf16.data(), 6, 64, 128};
  const std::vector<float> y = product(left, test::normal_values(64, 21));
  EXPECT_EQ(y.size(), 6U);
  const std::vector<float> row5(wide.values.begin() + 5 * 128, wide.values.begin() + 5 * 128 + 64);
  EXPECT_EQ(y[5], contract_dot(row5, test::normal_values(64, 21).data()));
}

TEST(Products, OutputStrideLeavesNeighboursAlone) {
  const Sample s = bf16_sample(3, 40, 22);
  const std::vector<float> x = test::normal_values(80, 23);
  std::vector<float> y(2 * 5, 7.0F);
  AlignedBuffer<float> scratch(product_scratch_floats(40, 2));
  multiply(s.as_bf16(), Batch{x.data(), 2, 40}, scratch.data(), {y.data(), 5});
  EXPECT_EQ(y[3], 7.0F);
  EXPECT_EQ(y[4], 7.0F);
  EXPECT_EQ(y[8], 7.0F);
}

// docs/numerics.md, error bounds: rms error at most 2.0e-7, maximum at most 1.0e-6 of the outputs' rms.
void expect_error_bound(std::size_t cols, bool outliers) {
  constexpr std::size_t kRows = 200;
  const Sample s = [&] {
    Sample sample{.rows = kRows, .cols = cols};
    sample.bf16 = test::to_bf16(test::normal_values(kRows * cols, 24, 0.02F));
    for (const std::uint16_t bits : sample.bf16) {
      sample.values.push_back(bf16_to_float(bits));
    }
    return sample;
  }();
  std::vector<float> x = test::normal_values(cols, 25);
  for (std::size_t i = 0; outliers && i < 8; ++i) {
    x[i * (cols / 8)] *= 100.0F;
  }
  const std::vector<float> y = product(s.as_bf16(), x);
  long double squares = 0.0L;
  long double error_squares = 0.0L;
  long double worst = 0.0L;
  for (std::size_t r = 0; r < kRows; ++r) {
    long double exact = 0.0L;
    for (std::size_t c = 0; c < cols; ++c) {
      exact += static_cast<long double>(s.values[r * cols + c]) * static_cast<long double>(x[c]);
    }
    const long double error = static_cast<long double>(y[r]) - exact;
    squares += exact * exact;
    error_squares += error * error;
    worst = std::max(worst, std::fabs(error));
  }
  const long double rms = std::sqrt(squares / kRows);
  EXPECT_LE(std::sqrt(error_squares / kRows) / rms, 2.0e-7L) << cols << " " << outliers;
  EXPECT_LE(worst / rms, 1.0e-6L) << cols << " " << outliers;
}

TEST(Products, ErrorStaysWithinItsBound) {
  for (const std::size_t cols : {7168U, 33792U}) {
    expect_error_bound(cols, false);
    expect_error_bound(cols, true);
  }
}

TEST(Products, DenormalsAreNotFlushed) {
  const std::vector<float> w = {0x1p-130F};
  const std::vector<float> x = {0x1p-10F};
  EXPECT_EQ(product(F32Matrix{w.data(), 1, 1, 1}, x)[0], 0x1p-140F);
}

#if defined(__SSE__) || defined(__aarch64__)
#if defined(__SSE__)
constexpr std::uint64_t kFlushToZero = 0x8040;  // of operands too

std::uint64_t float_mode() {
  return _mm_getcsr();
}

void set_float_mode(std::uint64_t mode) {
  _mm_setcsr(static_cast<unsigned>(mode));
}
#else
constexpr std::uint64_t kFlushToZero = std::uint64_t{1} << 24;  // FPCR.FZ, operands and results

std::uint64_t float_mode() {
  std::uint64_t mode = 0;
  asm volatile("mrs %0, fpcr" : "=r"(mode));
  return mode;
}

void set_float_mode(std::uint64_t mode) {
  asm volatile("msr fpcr, %0" : : "r"(mode));
}
#endif

// A host program may run with flush-to-zero on: the engine's answer must not change.
TEST(Products, FlushToZeroOfTheHostIsIgnored) {
  const std::vector<float> w(100, 0x1p-130F);
  const std::vector<float> x(1, 0x1p-10F);
  const std::uint64_t saved = float_mode();
  set_float_mode(saved | kFlushToZero);
  std::vector<float> y(100);
  {
    const test::ScopedThreads two(2);
    AlignedBuffer<float> scratch(product_scratch_floats(1, 1));
    multiply(F32Matrix{w.data(), 100, 1, 1}, Batch{x.data(), 1, 1}, scratch.data(),
             {y.data(), 100});
  }
  const std::uint64_t after = float_mode();
  set_float_mode(saved);
  EXPECT_EQ(after & kFlushToZero, kFlushToZero);  // the caller's mode comes back
  for (const float value : y) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(value), 512U);  // 2^-140
  }
}
#endif

TEST(Products, AccumulateRowsAddsRowAfterRow) {
  const Sample s = bf16_sample(9, 37, 26);
  const std::vector<float> factors = test::rough_values(9, 27);
  std::vector<float> sum = test::normal_values(37, 28);
  std::vector<float> expected = sum;
  for (std::size_t r = 0; r < 9; ++r) {
    for (std::size_t c = 0; c < 37; ++c) {
      expected[c] = std::fma(factors[r], s.values[r * 37 + c], expected[c]);
    }
  }
  accumulate_rows(s.as_bf16(), Batch{factors.data(), 1, 9}, {sum.data(), 37});
  EXPECT_TRUE(same_bits(sum, expected));
}

TEST(Products, InfinityAndNanReachTheOutput) {
  const std::vector<float> w(64, 1.0F);
  std::vector<float> x(64, 1.0F);
  x[40] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isinf(product(F32Matrix{w.data(), 1, 64, 64}, x)[0]));
  x[41] = std::nanf("");
  EXPECT_TRUE(std::isnan(product(F32Matrix{w.data(), 1, 64, 64}, x)[0]));
}

}  // namespace
}  // namespace k3::kernels

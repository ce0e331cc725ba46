// exp, sigmoid and tanh of every table against scalar over the bit patterns of float32, bit for bit.

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "base/parallel.h"
#include "kernels/elementary.h"
#include "kernels/isa.h"
#include "support/kernel_tables.h"

namespace k3::kernels {
namespace {

using Tables = std::vector<const KernelTable*>;

constexpr std::uint64_t kPatterns = std::uint64_t{1} << 32;
constexpr std::size_t kChunk = 4096;

struct Function {
  const char* name;
  void (*apply)(const KernelTable& table, float* values, std::size_t count);
};

constexpr std::array<Function, 3> kFunctions = {{
    {"exp", [](const KernelTable& t, float* v, std::size_t n) { t.exponentials(v, n, 0.0F); }},
    {"sigmoid", [](const KernelTable& t, float* v, std::size_t n) { t.sigmoid(v, n); }},
    {"tanh", [](const KernelTable& t, float* v, std::size_t n) { t.tanh(v, n); }},
}};

// Which NaN comes out for a NaN is not part of the contract, that one comes out is.
bool same_result(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) || (a != a && b != b);
}

// Every `step`-th pattern through every function of every table, on all threads.
class Sweep {
 public:
  Sweep(const Tables& tables, std::uint64_t step)
      : tables_(tables), step_(step), wrong_(tables.size() * kFunctions.size()) {
    for (std::atomic<std::uint64_t>& first : wrong_) {
      first = kPatterns;
    }
    const std::uint64_t values = (kPatterns + step - 1) / step;
    parallel_ranges(values, kChunk, kFunctions.size() * kTranscendentalWork,
                    [&](std::uint64_t first, std::uint64_t last) { compare(first, last); });
  }

  [[nodiscard]] std::uint64_t compared() const { return compared_; }

  // The lowest pattern for which the table is wrong; kPatterns for none.
  [[nodiscard]] std::uint64_t first_wrong(std::size_t table, std::size_t function) const {
    return wrong_[table * kFunctions.size() + function];
  }

 private:
  // Values [first, last) of the sweep, at most kChunk.
  void compare(std::uint64_t first, std::uint64_t last) {
    const auto count = static_cast<std::size_t>(last - first);
    std::array<float, kChunk> inputs;  // NOLINT(cppcoreguidelines-pro-type-member-init)
    for (std::size_t i = 0; i < count; ++i) {
      inputs[i] = std::bit_cast<float>(static_cast<std::uint32_t>((first + i) * step_));
    }
    for (std::size_t f = 0; f < kFunctions.size(); ++f) {
      auto expected = inputs;
      kFunctions[f].apply(scalar_table(), expected.data(), count);
      for (std::size_t t = 0; t < tables_.size(); ++t) {
        auto found = inputs;
        kFunctions[f].apply(*tables_[t], found.data(), count);
        const auto [wrong, ignored] =
            std::mismatch(found.begin(), found.begin() + count, expected.begin(), same_result);
        if (wrong != found.begin() + count) {
          note(wrong_[t * kFunctions.size() + f],
               (first + static_cast<std::uint64_t>(wrong - found.begin())) * step_);
        }
      }
    }
    compared_ += count;
  }

  static void note(std::atomic<std::uint64_t>& lowest, std::uint64_t pattern) {
    std::uint64_t seen = lowest;
    while (pattern < seen && !lowest.compare_exchange_weak(seen, pattern)) {
    }
  }

  const Tables& tables_;
  std::uint64_t step_;
  std::vector<std::atomic<std::uint64_t>> wrong_;  // [table][function]
  std::atomic<std::uint64_t> compared_ = 0;
};

void expect_scalar_bits(std::uint64_t step) {
  const Tables tables = test::tables_to_compare();
  const Sweep sweep(tables, step);
  EXPECT_EQ(sweep.compared(), (kPatterns - 1) / step + 1);
  for (std::size_t t = 0; t < tables.size(); ++t) {
    for (std::size_t f = 0; f < kFunctions.size(); ++f) {
      EXPECT_EQ(sweep.first_wrong(t, f), kPatterns)
          << tables[t]->name << ", " << kFunctions[f].name;
    }
  }
}

TEST(AllFloats, ASampleGivesTheBitsOfScalar) {
  expect_scalar_bits(257);
}

// scripts/check-elementary.sh
TEST(AllFloats, DISABLED_EachGivesTheBitsOfScalar) {
  expect_scalar_bits(1);
}

constexpr std::uint64_t kWrongStep = 65537;
constexpr std::uint32_t kWrongPattern = 0xBE00U * kWrongStep;  // about -0.13

void tanh_with_a_wrong_bit(float* values, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const bool wrong = std::bit_cast<std::uint32_t>(values[i]) == kWrongPattern;
    scalar_table().tanh(values + i, 1);
    values[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(values[i]) ^ (wrong ? 1U : 0U));
  }
}

TEST(AllFloats, OneWrongBitIsFound) {
  KernelTable faulty = scalar_table();
  faulty.tanh = tanh_with_a_wrong_bit;
  const Tables tables = {&scalar_table(), &faulty};
  const Sweep sweep(tables, kWrongStep);
  EXPECT_EQ(sweep.first_wrong(1, 2), kWrongPattern);
  EXPECT_EQ(sweep.first_wrong(1, 0), kPatterns);
  EXPECT_EQ(sweep.first_wrong(0, 2), kPatterns);
}

}  // namespace
}  // namespace k3::kernels

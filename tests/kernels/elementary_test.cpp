#include "kernels/elementary.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

namespace k3::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// |found - exact| in units of the last place of the float nearest to `exact`.
double error_ulp(float found, double exact) {
  const auto nearest = static_cast<float>(exact);
  const float next = std::nextafter(std::fabs(nearest), kInfinity);
  const double ulp = static_cast<double>(next) - std::fabs(static_cast<double>(nearest));
  return std::fabs(static_cast<double>(found) - exact) / ulp;
}

// Largest error over every `step`-th float for which the exact result is finite.
template <typename Function, typename Exact>
double worst_ulp(const Function& function, const Exact& exact, float low, float high) {
  constexpr std::uint32_t kStep = 6007;
  double worst = 0.0;
  for (std::uint64_t bits = 0; bits <= 0xFFFFFFFFULL; bits += kStep) {
    const float x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    if (x >= low && x <= high) {
      worst = std::max(worst, error_ulp(function(x), exact(static_cast<double>(x))));
    }
  }
  return worst;
}

// FNV-1a over the result bits of every 1021st float: the contract's bits, pinned.
template <typename Function>
std::uint64_t result_hash(const Function& function) {
  std::uint64_t hash = 0xCBF29CE484222325ULL;
  for (std::uint64_t bits = 0; bits <= 0xFFFFFFFFULL; bits += 1021) {
    const float x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    const float y = function(x);
    const std::uint32_t result = std::isnan(y) ? 0x7FC00000U : std::bit_cast<std::uint32_t>(y);
    hash = (hash ^ result) * 0x100000001B3ULL;
  }
  return hash;
}

TEST(Elementary, ExpIsWithinOneUlp) {
  EXPECT_LT(worst_ulp(
                exp_contract, [](double x) { return std::exp(x); }, -103.9F, 88.7F),
            1.0);
}

TEST(Elementary, TanhIsWithinOneAndAHalfUlp) {
  EXPECT_LT(worst_ulp(
                tanh_contract, [](double x) { return std::tanh(x); }, -kInfinity, kInfinity),
            1.5);
}

TEST(Elementary, SigmoidIsWithinTwoAndAHalfUlp) {
  const auto exact = [](double x) { return 1.0 / (1.0 + std::exp(-x)); };
  EXPECT_LT(worst_ulp(sigmoid_contract, exact, -87.0F, kInfinity), 2.5);
}

TEST(Elementary, EdgesOfExp) {
  EXPECT_EQ(exp_contract(0.0F), 1.0F);
  EXPECT_EQ(exp_contract(-0.0F), 1.0F);
  EXPECT_EQ(exp_contract(-kInfinity), 0.0F);
  EXPECT_EQ(exp_contract(-104.0F), 0.0F);
  EXPECT_EQ(exp_contract(kInfinity), kInfinity);
  EXPECT_EQ(exp_contract(88.73F), kInfinity);
  EXPECT_GT(exp_contract(-103.0F), 0.0F);  // gradual underflow
  EXPECT_TRUE(std::isnan(exp_contract(std::nanf(""))));
}

TEST(Elementary, EdgesOfSigmoidAndTanh) {
  EXPECT_EQ(sigmoid_contract(0.0F), 0.5F);
  EXPECT_EQ(sigmoid_contract(kInfinity), 1.0F);
  EXPECT_EQ(sigmoid_contract(-kInfinity), 0.0F);
  EXPECT_TRUE(std::isnan(sigmoid_contract(std::nanf(""))));
  EXPECT_EQ(tanh_contract(kInfinity), 1.0F);
  EXPECT_EQ(tanh_contract(-kInfinity), -1.0F);
  EXPECT_TRUE(std::signbit(tanh_contract(-0.0F)));
  EXPECT_EQ(tanh_contract(1e-30F), 1e-30F);
  EXPECT_TRUE(std::isnan(tanh_contract(std::nanf(""))));
}

TEST(Elementary, TanhIsOdd) {
  for (const float x : {1e-40F, 0.1F, 0.624999F, 0.625F, 3.0F, 50.0F}) {
    EXPECT_EQ(tanh_contract(-x), -tanh_contract(x)) << x;
  }
}

TEST(Elementary, SiluIsInputTimesSigmoid) {
  for (const float x : {-20.0F, -1.0F, 0.0F, 0.3F, 15.0F}) {
    EXPECT_EQ(silu_contract(x), x * sigmoid_contract(x)) << x;
  }
}

// Bits of the numeric contract: a change here changes every logit of every model.
TEST(Elementary, BitsArePinned) {
  EXPECT_EQ(result_hash(exp_contract), 8123730719276087914ULL);
  EXPECT_EQ(result_hash(sigmoid_contract), 6924328340361961746ULL);
  EXPECT_EQ(result_hash(tanh_contract), 16931535254265184938ULL);
}

}  // namespace
}  // namespace k3::kernels

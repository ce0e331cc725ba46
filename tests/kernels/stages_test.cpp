// Behaviour of the kernels that a comparison with a reference does not show.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/kda.h"
#include "kernels/norms.h"
#include "kernels/routing.h"
#include "kernels/softmax.h"
#include "support/numbers.h"

namespace k3::kernels {
namespace {

using test::same_bits;

TEST(Norms, SquaresDoNotOverflow) {
  const std::vector<float> x(4, 1e30F);
  const std::vector<float> gain(4, 2.0F);
  std::vector<float> y(4);
  rmsnorm(x.data(), gain.data(), 1e-5, 1, 4, y.data());
  for (const float value : y) {
    EXPECT_FLOAT_EQ(value, 2.0F);
  }
}

TEST(Norms, ThreadsDoNotChangeBits) {
  const std::vector<float> x = test::rough_values(64 * 640, 1);
  const std::vector<float> gain = test::normal_values(640, 2);
  const std::vector<const float*> sources = {x.data(), x.data() + 16 * 640, x.data() + 32 * 640};
  std::vector<float> expected_norm;
  std::vector<float> expected_sum;
  for (const int threads : {1, 2, 3, 7}) {
    const test::ScopedThreads scope(threads);
    std::vector<float> norm(x.size());
    rmsnorm_rows(x.data(), gain.data(), 1e-5, 64, 640, norm.data());
    std::vector<float> scores(16 * 3);
    std::vector<float> sum(16 * 640);
    aggregate({sources, gain.data(), 1e-5, 640}, 16, scores.data(), sum.data());
    expected_norm = expected_norm.empty() ? norm : expected_norm;
    expected_sum = expected_sum.empty() ? sum : expected_sum;
    EXPECT_TRUE(same_bits(norm, expected_norm));
    EXPECT_TRUE(same_bits(sum, expected_sum));
  }
}

TEST(Norms, AggregateOfOneSourceIsThatSource) {
  const std::vector<float> x = test::normal_values(33, 3);
  const std::vector<float> weight = test::normal_values(33, 4);
  const std::vector<const float*> sources = {x.data()};
  std::vector<float> score(1);
  std::vector<float> out(33);
  aggregate({sources, weight.data(), 1e-5, 33}, 1, score.data(), out.data());
  EXPECT_TRUE(same_bits(out, x));
}

TEST(Softmax, SumsToOneAndSurvivesLargeScores) {
  std::vector<float> scores = {1000.0F, 999.0F, -1000.0F};
  softmax(scores);
  EXPECT_NEAR(scores[0] + scores[1], 1.0F, 1e-6F);
  EXPECT_EQ(scores[2], 0.0F);
}

TEST(ShortConvolution, AnySplitOfTheTokensGivesTheSameBits) {
  constexpr std::size_t kChannels = 1500;
  constexpr std::size_t kTokens = 9;
  const std::vector<float> in = test::rough_values(kTokens * kChannels, 5);
  for (const std::size_t kernel : {2U, 3U, 4U}) {
    const std::vector<float> taps = test::normal_values(kernel * kChannels, 6);
    const ShortConv conv{kernel, kChannels, taps.data()};
    const std::vector<float> start = test::normal_values((kernel - 1) * kChannels, 7);
    std::vector<float> whole_tail = start;
    std::vector<float> whole(in.size());
    short_conv(conv, kTokens, in.data(), whole_tail.data(), whole.data());
    for (const std::size_t split : {1U, 2U, 5U}) {
      std::vector<float> tail = start;
      std::vector<float> out(in.size());
      short_conv(conv, split, in.data(), tail.data(), out.data());
      short_conv(conv, kTokens - split, in.data() + split * kChannels, tail.data(),
                 out.data() + split * kChannels);
      EXPECT_TRUE(same_bits(out, whole)) << kernel << " taps, split at " << split;
      EXPECT_TRUE(same_bits(tail, whole_tail)) << kernel << " taps, split at " << split;
    }
  }
}

TEST(ShortConvolution, ThreadsDoNotChangeBits) {
  constexpr std::size_t kChannels = 1500;
  constexpr std::size_t kTokens = 9;
  constexpr std::size_t kTaps = 4;
  const std::vector<float> in = test::rough_values(kTokens * kChannels, 5);
  const std::vector<float> taps = test::normal_values(kTaps * kChannels, 6);
  const std::vector<float> start = test::normal_values((kTaps - 1) * kChannels, 7);
  const ShortConv conv{kTaps, kChannels, taps.data()};
  std::vector<float> expected;
  std::vector<float> expected_tail;
  for (const int threads : {1, 2, 3, 7}) {
    const test::ScopedThreads scope(threads);
    std::vector<float> tail = start;
    std::vector<float> out(in.size());
    short_conv(conv, kTokens, in.data(), tail.data(), out.data());
    if (threads == 1) {
      expected = out;
      expected_tail = tail;
    }
    EXPECT_TRUE(same_bits(out, expected)) << threads;
    EXPECT_TRUE(same_bits(tail, expected_tail)) << threads;
  }
}

// One step against numerics.md 4.6 in double.
TEST(KdaRecurrence, FollowsTheFormula) {
  constexpr std::size_t kWidth = 24;
  const std::vector<float> q = test::normal_values(kWidth, 8);
  const std::vector<float> k = test::normal_values(kWidth, 9, 0.2F);
  const std::vector<float> v = test::normal_values(kWidth, 10);
  const std::vector<float> alpha(kWidth, 0.9F);
  std::vector<float> state = test::normal_values(kWidth * kWidth, 11);
  std::vector<double> s(state.begin(), state.end());
  std::vector<double> u(kWidth, 0.0);
  for (std::size_t i = 0; i < kWidth * kWidth; ++i) {
    s[i] *= static_cast<double>(alpha[i / kWidth]);
    u[i % kWidth] += static_cast<double>(k[i / kWidth]) * s[i];
  }
  std::vector<double> o(kWidth, 0.0);
  for (std::size_t i = 0; i < kWidth * kWidth; ++i) {
    const std::size_t j = i % kWidth;
    s[i] += static_cast<double>(k[i / kWidth]) * 0.7 * (static_cast<double>(v[j]) - u[j]);
    o[j] += static_cast<double>(q[i / kWidth]) * s[i];
  }
  std::vector<float> out(kWidth);
  kda_step({q.data(), k.data(), v.data(), alpha.data(), 0.7F}, kWidth, state.data(), out.data());
  EXPECT_TRUE(test::within(state, std::vector<float>(s.begin(), s.end()), 2e-6));
  EXPECT_TRUE(test::within(out, std::vector<float>(o.begin(), o.end()), 1e-5));
}

struct Routed {
  bool finite = false;
  std::vector<std::uint32_t> chosen;
  std::vector<float> weights;
};

Routed run_router(std::vector<float> logits, const std::vector<float>& bias, Router router) {
  router.experts = logits.size();
  router.bias = bias.data();
  Routed result;
  result.chosen.resize(router.top_k);
  result.weights.resize(router.top_k);
  result.finite = route(router, logits.data(), result.chosen.data(), result.weights.data());
  return result;
}

TEST(Routing, TiesGoToTheLowerIndex) {
  const std::vector<float> bias(6, 0.0F);
  const Routed routed = run_router({1, 2, 2, 1, 2, 2}, bias, {.top_k = 5, .scaling = 1.0});
  EXPECT_EQ(routed.chosen, (std::vector<std::uint32_t>{1, 2, 4, 5, 0}));
}

TEST(Routing, BiasSelectsButDoesNotWeigh) {
  const std::vector<float> bias = {0.0F, 5.0F, 0.0F};
  const Routed routed = run_router({3, -3, 1}, bias, {.top_k = 2, .scaling = 1.0});
  EXPECT_EQ(routed.chosen, (std::vector<std::uint32_t>{1, 0}));
  EXPECT_NEAR(routed.weights[0], 1.0 / (1.0 + std::exp(3.0)), 1e-7);
  EXPECT_NEAR(routed.weights[1], 1.0 / (1.0 + std::exp(-3.0)), 1e-7);
}

TEST(Routing, OneExpertIsNotRenormalised) {
  const std::vector<float> bias(2, 0.0F);
  const Routed routed =
      run_router({0, -1}, bias, {.top_k = 1, .renormalize = true, .scaling = 2.5});
  EXPECT_FLOAT_EQ(routed.weights[0], 1.25F);
}

TEST(Routing, RenormalisedWeightsSumToTheScaling) {
  const std::vector<float> bias(4, 0.0F);
  const Routed routed =
      run_router({0, -1, 2, 1}, bias, {.top_k = 3, .renormalize = true, .scaling = 2.5});
  EXPECT_NEAR(routed.weights[0] + routed.weights[1] + routed.weights[2], 2.5, 1e-6);
}

TEST(Routing, AllExpertsCanBeChosen) {
  const std::vector<float> bias(3, 0.0F);
  const Routed routed = run_router({0, 2, 1}, bias, {.top_k = 3, .scaling = 1.0});
  EXPECT_EQ(routed.chosen, (std::vector<std::uint32_t>{1, 2, 0}));
}

TEST(Routing, ANonFiniteScoreIsRefused) {
  const std::vector<float> bias(3, 0.0F);
  EXPECT_FALSE(run_router({0, std::nanf(""), 1}, bias, {.top_k = 1, .scaling = 1.0}).finite);
  const std::vector<float> broken = {0.0F, std::numeric_limits<float>::infinity(), 0.0F};
  EXPECT_FALSE(run_router({0, 1, 1}, broken, {.top_k = 1, .scaling = 1.0}).finite);
}

}  // namespace
}  // namespace k3::kernels

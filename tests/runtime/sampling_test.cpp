// Draws from logits: the generator's published numbers, a transcription of docs/sampling.md, and its
// borders.

#include "k3/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "support/numbers.h"

namespace k3 {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// SplitMix64's outputs for the seed 1234567 are known: 6457827717110365317, 3203168211198807973, ...
// Of 2^16 equal logits each draw takes the one that the upper 16 bits say.
TEST(Sampler, DrawsWithTheNumbersOfSplitMix64) {
  Sampler sampler({.temperature = 1.0, .seed = 1234567});
  const std::vector<float> logits(65536, 2.5F);
  const std::vector<std::int32_t> expected = {22942, 11379, 34878, 16318, 58296};
  for (std::size_t position = 0; position < expected.size(); ++position) {
    EXPECT_EQ(sampler.choose(logits, position), expected[position]);
  }
  EXPECT_EQ(sampler.choose(logits, 1), expected[1]);  // the position counts, not the calls
}

// The page in words of the standard library: weights exp((l - largest) / T), the fewest of the largest
// weights that reach top-p, one of them by a uniform number over their sum in the order of ids.
std::int32_t transcribed(const std::vector<float>& logits,
                         double temperature,
                         double top_p,
                         double u) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  std::vector<double> weights(logits.size());
  std::transform(logits.begin(), logits.end(), weights.begin(), [&](float logit) {
    return std::exp((static_cast<double>(logit) - static_cast<double>(largest)) / temperature);
  });
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return weights[a] > weights[b]; });
  double sum = 0.0;
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (const std::size_t token : order) {
    if (top_p < 1.0 && sum >= top_p * total) {
      weights[token] = 0.0;
    }
    sum += weights[token];
  }
  double rest = u * std::accumulate(weights.begin(), weights.end(), 0.0);
  for (std::size_t token = 0; token < weights.size(); ++token) {
    rest -= weights[token];
    if (rest < 0.0) {
      return static_cast<std::int32_t>(token);
    }
  }
  return -1;
}

double uniform_of(std::uint64_t seed, std::size_t position) {
  Sampler sampler({.temperature = 1.0, .seed = seed});
  const std::vector<float> equal(1U << 20U, 0.0F);
  return (static_cast<double>(sampler.choose(equal, position)) + 0.5) /
         static_cast<double>(equal.size());
}

TEST(Sampler, DrawsWhatThePageSays) {
  int draws = 0;
  for (const double temperature : {0.3, 1.0, 4.0}) {
    for (const double top_p : {0.05, 0.5, 0.95, 1.0}) {
      for (unsigned round = 0; round < 8; ++round) {
        const std::vector<float> logits = test::normal_values(500, round, 3.0F);
        Sampler sampler({.temperature = temperature, .top_p = top_p, .seed = round});
        EXPECT_EQ(sampler.choose(logits, 7),
                  transcribed(logits, temperature, top_p, uniform_of(round, 7)));
        ++draws;
      }
    }
  }
  EXPECT_EQ(draws, 96);
}

TEST(Sampler, FrequenciesAreTheProbabilities) {
  const std::vector<float> logits = {std::log(0.5F), std::log(0.3F), std::log(0.2F)};
  std::vector<int> counts(3);
  Sampler sampler({.temperature = 1.0, .seed = 5});
  constexpr int kDraws = 20000;
  for (std::size_t position = 0; position < kDraws; ++position) {
    ++counts[static_cast<std::size_t>(sampler.choose(logits, position))];
  }
  EXPECT_NEAR(counts[0], 0.5 * kDraws, 300);
  EXPECT_NEAR(counts[1], 0.3 * kDraws, 300);
  EXPECT_NEAR(counts[2], 0.2 * kDraws, 300);
}

TEST(Sampler, TopPKeepsTheFewestThatReachIt) {
  const std::vector<float> logits = {std::log(0.2F), std::log(0.5F), std::log(0.3F)};
  const auto drawn = [&](double top_p) {
    std::vector<bool> seen(3);
    Sampler sampler({.temperature = 1.0, .top_p = top_p, .seed = 9});
    for (std::size_t position = 0; position < 200; ++position) {
      seen[static_cast<std::size_t>(sampler.choose(logits, position))] = true;
    }
    return seen;
  };
  EXPECT_EQ(drawn(0.4), (std::vector<bool>{false, true, false}));
  EXPECT_EQ(drawn(0.6), (std::vector<bool>{false, true, true}));
  EXPECT_EQ(drawn(0.9), (std::vector<bool>{true, true, true}));
}

// Of equal weights the lower ids are kept.
TEST(Sampler, TiesAtTheBorderOfTopPGoToLowerIds) {
  const std::vector<float> logits(10, 1.0F);
  Sampler sampler({.temperature = 1.0, .top_p = 0.3, .seed = 2});
  for (std::size_t position = 0; position < 100; ++position) {
    EXPECT_LT(sampler.choose(logits, position), 3);
  }
}

TEST(Sampler, TemperatureZeroIsTheLargestLogit) {
  Sampler sampler({.temperature = 0.0, .seed = 1});
  EXPECT_EQ(sampler.choose(std::vector<float>{1.0F, 3.0F, 3.0F, 2.0F}, 0), 1);
}

TEST(Sampler, ExtremesOfTemperatureAndLogitsDrawATokenThatIsThere) {
  for (const double temperature : {5e-324, 1e-300, 1e-6, 1e300}) {
    for (const float scale : {1e-30F, 1.0F, 3e38F}) {
      Sampler sampler({.temperature = temperature, .top_p = 0.5, .seed = 4});
      const std::vector<float> logits = {-scale, scale, 0.0F};
      const std::int32_t token = sampler.choose(logits, 3);
      EXPECT_TRUE(token >= 0 && token < 3);
      if (temperature < 1e-200 && scale >= 1.0F) {
        EXPECT_EQ(token, 1);
      }
    }
  }
}

TEST(Sampling, SenselessValuesAreRefused) {
  for (const double temperature : {-1.0, -1e-300, kNan, kInfinity}) {
    EXPECT_TRUE(test::throws(ErrorKind::kUsage, {"temperature"},
                             [&] { Sampling{.temperature = temperature}.check(); }));
  }
  for (const double top_p : {0.0, -0.5, 1.0000001, kNan, kInfinity}) {
    EXPECT_TRUE(test::throws(ErrorKind::kUsage, {"top-p"},
                             [&] { Sampler({.temperature = 1.0, .top_p = top_p}); }));
  }
}

}  // namespace
}  // namespace k3

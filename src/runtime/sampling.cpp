#include "k3/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "k3/errors.h"

#include "kernels/elementary.h"

namespace k3 {
namespace {

// Output `index` of the generator SplitMix64 with this seed, as a number of 53 bits in [0, 1).
double uniform(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t bits = seed + (index + 1) * 0x9E3779B97F4A7C15U;
  bits = (bits ^ (bits >> 30U)) * 0xBF58476D1CE4E5B9U;
  bits = (bits ^ (bits >> 27U)) * 0x94D049BB133111EBU;
  bits ^= bits >> 31U;
  return static_cast<double>(bits >> 11U) * 0x1p-53;
}

double sum_of(std::span<const float> weights) {
  double sum = 0.0;
  for (const float weight : weights) {
    sum += static_cast<double>(weight);
  }
  return sum;
}

[[noreturn]] void refuse(const char* what, const char* expected, double found) {
  throw Error(ErrorKind::kUsage,
              {.what = what, .expected = expected, .found = std::to_string(found)});
}

}  // namespace

std::int32_t argmax(std::span<const float> logits) {
  return static_cast<std::int32_t>(
      std::distance(logits.begin(), std::max_element(logits.begin(), logits.end())));
}

void Sampling::check() const {
  if (!std::isfinite(temperature) || temperature < 0.0) {
    refuse("temperature", "0, or a positive finite number", temperature);
  }
  if (!(top_p > 0.0 && top_p <= 1.0)) {
    refuse("top-p", "a number above 0, at most 1", top_p);
  }
}

Sampler::Sampler(const Sampling& sampling) : sampling_(sampling) {
  sampling_.check();
}

std::int32_t Sampler::choose(std::span<const float> logits, std::size_t position) {
  const std::int32_t best = argmax(logits);
  if (sampling_.temperature == 0.0) {
    return best;
  }
  const auto largest = static_cast<double>(logits[static_cast<std::size_t>(best)]);
  weights_.resize(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double scaled = (static_cast<double>(logits[i]) - largest) / sampling_.temperature;
    // Below -126 ln 2 float32 has no normal numbers: nothing is drawn there.
    constexpr double kLowest = -87.0;
    weights_[i] = scaled < kLowest ? 0.0F : kernels::exp_contract(static_cast<float>(scaled));
  }
  if (sampling_.top_p < 1.0) {
    order_.resize(logits.size());
    std::iota(order_.begin(), order_.end(), 0U);
    std::sort(order_.begin(), order_.end(), [this](std::uint32_t a, std::uint32_t b) {
      return weights_[a] != weights_[b] ? weights_[a] > weights_[b] : a < b;
    });
    const double enough = sampling_.top_p * sum_of(weights_);
    double sum = 0.0;
    for (const std::uint32_t token : order_) {
      if (sum >= enough) {
        weights_[token] = 0.0F;
      } else {
        sum += static_cast<double>(weights_[token]);
      }
    }
  }
  const double target = uniform(sampling_.seed, position) * sum_of(weights_);
  double sum = 0.0;
  std::int32_t chosen = best;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    if (weights_[i] > 0.0F) {
      sum += static_cast<double>(weights_[i]);
      chosen = static_cast<std::int32_t>(i);
      if (sum > target) {
        break;
      }
    }
  }
  return chosen;
}

}  // namespace k3

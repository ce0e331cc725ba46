// The one softmax: float32 exponentials, denominator in double, in order.
#pragma once

#include <algorithm>
#include <span>

#include "kernels/isa.h"

namespace k3::kernels {

// Replaces scores by exp(score - shift) and returns their sum in double, in order.
[[nodiscard]] inline double exponentiate(std::span<float> scores, float shift) noexcept {
  kernels().exponentials(scores.data(), scores.size(), shift);
  double sum = 0.0;
  for (const float score : scores) {
    sum += static_cast<double>(score);
  }
  return sum;
}

// Replaces scores by their softmax.
inline void softmax(std::span<float> scores) noexcept {
  const float shift = *std::max_element(scores.begin(), scores.end());
  const double sum = exponentiate(scores, shift);
  const auto scale = static_cast<float>(1.0 / sum);
  for (float& score : scores) {
    score *= scale;
  }
}

}  // namespace k3::kernels

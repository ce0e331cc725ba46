#include "kernels/norms.h"

#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "kernels/isa.h"
#include "kernels/softmax.h"

namespace k3::kernels {
namespace {

// Products of two float32 are exact in double, so only the additions round.
double sum_of_squares(const float* x, std::size_t count) {
  double sum = 0.0;
  for (std::size_t i = 0; i < count; ++i) {
    sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  return sum;
}

float source_score(const float* source, const float* weight, double eps, std::size_t width) {
  double squares = 0.0;
  double product = 0.0;
  for (std::size_t i = 0; i < width; ++i) {
    const auto value = static_cast<double>(source[i]);
    squares += value * value;
    product += value * static_cast<double>(weight[i]);
  }
  return static_cast<float>(product / std::sqrt(squares / static_cast<double>(width) + eps));
}

void aggregate_token(const ResidualSources& input, std::size_t token, float* scores, float* out) {
  const std::size_t offset = token * input.width;
  const std::span<float> weights(scores, input.sources.size());
  for (std::size_t s = 0; s < input.sources.size(); ++s) {
    weights[s] = source_score(input.sources[s] + offset, input.weight, input.eps, input.width);
  }
  softmax(weights);
  std::fill_n(out, input.width, 0.0F);
  for (std::size_t s = 0; s < input.sources.size(); ++s) {
    kernels().add_scaled(weights[s], input.sources[s] + offset, input.width, out);
  }
}

}  // namespace

void rmsnorm(
    const float* x, const float* gain, double eps, std::size_t count, float* out) noexcept {
  const double mean = sum_of_squares(x, count) / static_cast<double>(count);
  const auto scale = static_cast<float>(1.0 / std::sqrt(mean + eps));
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = gain[i] * (x[i] * scale);
  }
}

void rmsnorm_rows(const float* x,
                  const float* gain,
                  double eps,
                  std::size_t vectors,
                  std::size_t width,
                  float* out) {
  parallel_for(vectors, 4 * width,
               [&](std::size_t v) { rmsnorm(x + v * width, gain, eps, width, out + v * width); });
}

void l2norm(float* x, std::size_t count) noexcept {
  constexpr double kEps = 1e-6;
  const auto scale = static_cast<float>(1.0 / std::sqrt(sum_of_squares(x, count) + kEps));
  for (std::size_t i = 0; i < count; ++i) {
    x[i] *= scale;
  }
}

void aggregate(const ResidualSources& input, std::size_t tokens, float* scores, float* out) {
  parallel_for(tokens, 6 * input.sources.size() * input.width, [&](std::size_t token) {
    aggregate_token(input, token, scores + token * input.sources.size(), out + token * input.width);
  });
}

}  // namespace k3::kernels

#include "kernels/norms.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/parallel.h"
#include "kernels/isa.h"
#include "kernels/softmax.h"

namespace k3::kernels {
namespace {

using Rows = std::array<const float*, kSumRows>;
using Sums = std::array<double, kSumRows>;

// `count` consecutive vectors, at most kSumRows.
Rows consecutive(const float* x, std::size_t count, std::size_t width) {
  Rows rows = {};
  for (std::size_t v = 0; v < count; ++v) {
    rows[v] = x + v * width;
  }
  return rows;
}

Sums sums_of_squares(const float* x, std::size_t count, std::size_t width) {
  const Rows rows = consecutive(x, count, width);
  Sums sums = {};
  kernels().square_sums({rows.data(), count, width}, sums.data());
  return sums;
}

// Scores of (token, source) pairs, as many side by side as there are.
void score_sources(const ResidualSources& input,
                   std::size_t first_token,
                   std::size_t tokens,
                   float* scores) {
  const std::size_t sources = input.sources.size();
  for (std::size_t first = 0; first < tokens * sources; first += kSumRows) {
    const std::size_t count = std::min(kSumRows, tokens * sources - first);
    Rows rows = {};
    for (std::size_t r = 0; r < count; ++r) {
      const std::size_t token = first_token + (first + r) / sources;
      rows[r] = input.sources[(first + r) % sources] + token * input.width;
    }
    Sums squares = {};
    Sums products = {};
    kernels().score_sums({rows.data(), count, input.width}, input.weight, squares.data(),
                         products.data());
    for (std::size_t r = 0; r < count; ++r) {
      const double mean = squares[r] / static_cast<double>(input.width);
      scores[first + r] = static_cast<float>(products[r] / std::sqrt(mean + input.eps));
    }
  }
}

// out = the sources of one token, weighed by the softmax of their scores.
void weigh_sources(const ResidualSources& input, std::size_t token, float* scores, float* out) {
  softmax({scores, input.sources.size()});
  std::fill_n(out, input.width, 0.0F);
  for (std::size_t s = 0; s < input.sources.size(); ++s) {
    kernels().add_scaled(scores[s], input.sources[s] + token * input.width, input.width, out);
  }
}

}  // namespace

void rmsnorm(const float* x,
             const float* gain,
             double eps,
             std::size_t vectors,
             std::size_t width,
             float* out) noexcept {
  for (std::size_t first = 0; first < vectors; first += kSumRows) {
    const std::size_t count = std::min(kSumRows, vectors - first);
    const Sums squares = sums_of_squares(x + first * width, count, width);
    for (std::size_t v = 0; v < count; ++v) {
      const double mean = squares[v] / static_cast<double>(width);
      const auto scale = static_cast<float>(1.0 / std::sqrt(mean + eps));
      const std::size_t offset = (first + v) * width;
      kernels().scale_by_gain(x + offset, gain, scale, width, out + offset);
    }
  }
}

void rmsnorm_rows(const float* x,
                  const float* gain,
                  double eps,
                  std::size_t vectors,
                  std::size_t width,
                  float* out) {
  parallel_ranges(vectors, kSumRows, 4 * width, [&](std::size_t first, std::size_t last) {
    rmsnorm(x + first * width, gain, eps, last - first, width, out + first * width);
  });
}

void l2norm(float* x, std::size_t vectors, std::size_t width) noexcept {
  constexpr double kEps = 1e-6;
  for (std::size_t first = 0; first < vectors; first += kSumRows) {
    const std::size_t count = std::min(kSumRows, vectors - first);
    const Sums squares = sums_of_squares(x + first * width, count, width);
    for (std::size_t v = 0; v < count; ++v) {
      const auto scale = static_cast<float>(1.0 / std::sqrt(squares[v] + kEps));
      float* vector = x + (first + v) * width;
      for (std::size_t i = 0; i < width; ++i) {
        vector[i] *= scale;
      }
    }
  }
}

void aggregate(const ResidualSources& input, std::size_t tokens, float* scores, float* out) {
  const std::size_t sources = input.sources.size();
  // Tokens of a task: few, and enough sources to sum side by side.
  const std::size_t grain = std::max<std::size_t>(1, kSumRows / sources);
  parallel_ranges(
      tokens, grain, 6 * sources * input.width, [&](std::size_t first, std::size_t last) {
        score_sources(input, first, last - first, scores + first * sources);
        for (std::size_t token = first; token < last; ++token) {
          weigh_sources(input, token, scores + token * sources, out + token * input.width);
        }
      });
}

}  // namespace k3::kernels

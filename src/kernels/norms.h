// Norms and the aggregation of residual sources. Sums of squares run in double, in order.
#pragma once

#include <cstddef>
#include <span>

namespace k3::kernels {

// Of `vectors` consecutive vectors that share one gain, each out[i] = gain[i] * (x[i] * s),
// s = float(1 / sqrt(mean(x^2) + eps)). x and out: [vectors][width]; `out` may be `x`. Serial; the
// sums of kSumRows vectors run side by side.
void rmsnorm(const float* x,
             const float* gain,
             double eps,
             std::size_t vectors,
             std::size_t width,
             float* out) noexcept;

// The same, split over the threads.
void rmsnorm_rows(const float* x,
                  const float* gain,
                  double eps,
                  std::size_t vectors,
                  std::size_t width,
                  float* out);

// Of `vectors` consecutive vectors, each x[i] *= float(1 / sqrt(sum(x^2) + 1e-6)): the sum, not the
// mean. x: [vectors][width]. Serial; the sums of kSumRows vectors run side by side.
void l2norm(float* x, std::size_t vectors, std::size_t width) noexcept;

// The sources that a layer aggregates: its snapshots and the running residual.
struct ResidualSources {
  std::span<const float* const> sources;  // [source] -> [token][width]
  const float* weight = nullptr;          // [width], the folded norm_w * proj_w
  double eps = 0.0;
  std::size_t width = 0;
};

// Block attention residuals, numerics.md 3: for each token, a softmax over the sources weighs the raw
// sources. score_s = sum(source_s * weight) / sqrt(mean(source_s^2) + eps), in double, in order;
// out[i] = sum over s of p_s * source_s[i] by fused multiply-adds, source after source.
// scores: [tokens][sources] scratch; out: [tokens][width], not one of the sources. Tokens are
// split over the threads.
void aggregate(const ResidualSources& input, std::size_t tokens, float* scores, float* out);

}  // namespace k3::kernels

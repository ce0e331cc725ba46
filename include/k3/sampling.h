// Choosing a token from logits: the largest, or a draw that is the same on every machine
// (docs/sampling.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace k3 {

// Index of the largest logit; the lowest index on ties.
[[nodiscard]] std::int32_t argmax(std::span<const float> logits);

struct Sampling {
  double temperature = 0.0;  // 0: the largest logit; else positive and finite
  double top_p = 1.0;        // above 0, at most 1
  std::uint64_t seed = 0;

  // Throws Error(kUsage) naming the value that makes no sense.
  void check() const;
};

// Draws tokens by a Sampling. What it draws depends on the logits, the Sampling and the position alone.
class Sampler {
 public:
  // Throws as Sampling::check.
  explicit Sampler(const Sampling& sampling);

  // The token that stands at `position`, counted from 0, of its sequence. logits: [V], finite.
  [[nodiscard]] std::int32_t choose(std::span<const float> logits, std::size_t position);

 private:
  Sampling sampling_;
  std::vector<float> weights_;        // [V]
  std::vector<std::uint32_t> order_;  // [V]
};

}  // namespace k3

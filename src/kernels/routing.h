// Selection and combining weights of the routed experts (numerics.md 6.1).
#pragma once

#include <cstddef>
#include <cstdint>

namespace k3::kernels {

struct Router {
  std::size_t experts = 0;
  std::size_t top_k = 0;
  const float* bias = nullptr;  // [experts], counts for the selection alone
  bool renormalize = false;     // divide by (sum + 1e-20) when more than one is chosen
  double scaling = 1.0;
};

// Chooses the top_k largest of sigmoid(logit) + bias, ties to the lower index, in descending
// order. weights[j] is the unbiased score of choice j, renormalised (sum in double, in selection
// order) and scaled. `scores` holds the logits on entry and is scratch: [experts].
// Returns false, with nothing chosen, when a selection score is not finite. Serial.
[[nodiscard]] bool route(const Router& router,
                         float* scores,
                         std::uint32_t* chosen,
                         float* weights) noexcept;

// sum[i] = fma(weight, value[i], sum[i]). Serial.
void add_scaled(float weight, const float* value, std::size_t count, float* sum) noexcept;

}  // namespace k3::kernels

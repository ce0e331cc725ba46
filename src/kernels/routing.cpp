#include "kernels/routing.h"

#include "base/float_bits.h"
#include "kernels/activation.h"
#include "kernels/isa.h"

namespace k3::kernels {
namespace {

// Inserts `expert` into the `chosen` list of at most `top_k`, which is kept in descending order of
// selection score. Experts come by ascending index, so an equal score never overtakes.
std::size_t insert_choice(const Router& router,
                          const float* scores,
                          std::uint32_t expert,
                          std::uint32_t* chosen,
                          std::size_t count) {
  const auto selection = [&](std::uint32_t e) { return scores[e] + router.bias[e]; };
  const float score = selection(expert);
  std::size_t place = count;
  while (place > 0 && score > selection(chosen[place - 1])) {
    --place;
  }
  if (place == router.top_k) {
    return count;
  }
  const std::size_t new_count = count < router.top_k ? count + 1 : count;
  for (std::size_t j = new_count - 1; j > place; --j) {
    chosen[j] = chosen[j - 1];
  }
  chosen[place] = expert;
  return new_count;
}

}  // namespace

bool route(const Router& router, float* scores, std::uint32_t* chosen, float* weights) noexcept {
  sigmoid_in_place(scores, router.experts);
  std::size_t count = 0;
  for (std::uint32_t e = 0; e < router.experts; ++e) {
    if (!is_finite(scores[e] + router.bias[e])) {
      return false;
    }
    count = insert_choice(router, scores, e, chosen, count);
  }
  double sum = 0.0;
  for (std::size_t j = 0; j < router.top_k; ++j) {
    sum += static_cast<double>(scores[chosen[j]]);
  }
  const bool renormalize = router.renormalize && router.top_k > 1;
  const double divisor = renormalize ? sum + 1e-20 : 1.0;
  for (std::size_t j = 0; j < router.top_k; ++j) {
    const double score = static_cast<double>(scores[chosen[j]]);
    weights[j] = static_cast<float>(score / divisor * router.scaling);
  }
  return true;
}

void add_scaled(float weight, const float* value, std::size_t count, float* sum) noexcept {
  kernels().add_scaled(weight, value, count, sum);
}

}  // namespace k3::kernels

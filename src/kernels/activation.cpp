#include "kernels/activation.h"

#include "kernels/elementary.h"

namespace k3::kernels {

void situ_glu(
    const float* gate, const float* up, SituBetas betas, std::size_t count, float* out) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    const float capped = betas.gate * tanh_contract(gate[i] / betas.gate);
    const float gated = capped * sigmoid_contract(gate[i]);
    const float linear = betas.linear * tanh_contract(up[i] / betas.linear);
    out[i] = gated * linear;
  }
}

void multiply_by_sigmoid(const float* gate, std::size_t count, float* values) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    values[i] *= sigmoid_contract(gate[i]);
  }
}

void sigmoid_in_place(float* values, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = sigmoid_contract(values[i]);
  }
}

}  // namespace k3::kernels

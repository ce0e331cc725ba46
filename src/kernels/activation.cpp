#include "kernels/activation.h"

#include "kernels/isa.h"

namespace k3::kernels {

void situ_glu(
    const float* gate, const float* up, SituBetas betas, std::size_t count, float* out) noexcept {
  kernels().situ_glu(gate, up, betas, count, out);
}

void multiply_by_sigmoid(const float* gate, std::size_t count, float* values) noexcept {
  kernels().gate(gate, count, values);
}

void sigmoid_in_place(float* values, std::size_t count) noexcept {
  kernels().sigmoid(values, count);
}

}  // namespace k3::kernels

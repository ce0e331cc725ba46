// Activations of the MLPs and gates.
#pragma once

#include <cstddef>

namespace k3::kernels {

// The two caps of SiTU-GLU (numerics.md 1: b1 = 4, b2 = 25).
struct SituBetas {
  float gate = 0.0F;    // b1
  float linear = 0.0F;  // b2
};

// out[i] = (b1 * tanh(gate[i] / b1) * sigmoid(gate[i])) * (b2 * tanh(up[i] / b2)).
// The sigmoid takes the uncapped gate. `out` may be `gate` or `up`. Serial.
void situ_glu(
    const float* gate, const float* up, SituBetas betas, std::size_t count, float* out) noexcept;

// values[i] *= sigmoid(gate[i]). Serial.
void multiply_by_sigmoid(const float* gate, std::size_t count, float* values) noexcept;

// values[i] = sigmoid(values[i]). Serial.
void sigmoid_in_place(float* values, std::size_t count) noexcept;

}  // namespace k3::kernels

// Kimi Delta Attention: convolution, decay and state update (numerics.md 4).
#pragma once

#include <cstddef>

namespace k3::kernels {

// A causal depthwise convolution, followed by SiLU.
struct ShortConv {
  std::size_t kernel = 0;       // K taps
  std::size_t channels = 0;     // C
  const float* taps = nullptr;  // [K][C], oldest first; the last multiplies the current input
};

// The part of a convolution that one kernel call computes: channels [first, last) of one token.
struct ConvPart {
  const float* in = nullptr;    // [token][C]
  const float* tail = nullptr;  // [K-1][C], the inputs before token 0, oldest first
  std::size_t token = 0;
  std::size_t first = 0;
  std::size_t last = 0;
};

// in: [token][C] of consecutive tokens; out: [token][C], another buffer. tail: [K-1][C], the inputs
// before the first token, oldest first; replaced by the last K-1 inputs. out = silu(sum over taps,
// oldest first, by fused multiply-adds from +0). Tokens and channels are split over the threads.
void short_conv(
    const ShortConv& conv, std::size_t tokens, const float* in, float* tail, float* out);

// Decay of one token: z[h][i] becomes alpha = exp(lower_bound * sigmoid(rate[h] * (z + bias))).
// rate[h] = exp(A_log[h]); z and bias: [heads][width]. Serial.
struct DecayGate {
  std::size_t heads = 0;
  std::size_t width = 0;
  const float* rate = nullptr;  // [heads]
  const float* bias = nullptr;  // [heads][width]
  float lower_bound = 0.0F;
};

void kda_decay(const DecayGate& gate, float* z) noexcept;

// Inputs of one head for one token.
struct KdaStep {
  const float* q = nullptr;      // [D], normalised and scaled
  const float* k = nullptr;      // [D], normalised
  const float* v = nullptr;      // [D]
  const float* alpha = nullptr;  // [D], decay of each key row
  float beta = 0.0F;
};

// state: [D key rows][D value columns], updated in this order, each value column summing over the key
// rows in order by fused multiply-adds from +0: S[i] *= alpha[i]; u = sum k[i] S[i];
// S[i] = fma(k[i], beta * (v - u), S[i]); out = sum q[i] S[i] from the updated state. Serial.
void kda_step(const KdaStep& step, std::size_t width, float* state, float* out) noexcept;

}  // namespace k3::kernels

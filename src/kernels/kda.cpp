#include "kernels/kda.h"

#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "kernels/elementary.h"

namespace k3::kernels {
namespace {

// The inputs of one convolution call, the tail joined in front.
struct ConvRow {
  const ShortConv& conv;
  const float* in;    // [token][C]
  const float* tail;  // [K-1][C]

  // Inputs that tap j sees at `token`: from the tail where they precede the first token.
  [[nodiscard]] const float* under_tap(std::size_t token, std::size_t j) const {
    const std::size_t index = token + j;  // counted from the oldest row of the tail
    const std::size_t past = conv.kernel - 1;
    return index < past ? tail + index * conv.channels : in + (index - past) * conv.channels;
  }
};

void convolve(
    const ConvRow& row, std::size_t token, std::size_t first, std::size_t last, float* out) {
  std::fill(out + first, out + last, 0.0F);
  for (std::size_t j = 0; j < row.conv.kernel; ++j) {
    const float* taps = row.conv.taps + j * row.conv.channels;
    const float* input = row.under_tap(token, j);
    for (std::size_t c = first; c < last; ++c) {
      out[c] = std::fma(taps[c], input[c], out[c]);
    }
  }
  for (std::size_t c = first; c < last; ++c) {
    out[c] = silu_contract(out[c]);
  }
}

// The last K-1 rows of (tail, in).
void advance_tail(const ShortConv& conv, std::size_t tokens, const float* in, float* tail) {
  const std::size_t past = conv.kernel - 1;
  const std::size_t kept = tokens < past ? past - tokens : 0;  // rows of the old tail that stay
  const std::size_t fresh = past - kept;
  std::copy_n(tail + (past - kept) * conv.channels, kept * conv.channels, tail);
  std::copy_n(in + (tokens - fresh) * conv.channels, fresh * conv.channels,
              tail + kept * conv.channels);
}

}  // namespace

void short_conv(
    const ShortConv& conv, std::size_t tokens, const float* in, float* tail, float* out) {
  constexpr std::size_t kChannelsPerTask = 1024;
  const std::size_t parts = (conv.channels + kChannelsPerTask - 1) / kChannelsPerTask;
  const ConvRow row{conv, in, tail};
  parallel_for(tokens * parts, [&](std::size_t task) {
    const std::size_t token = task / parts;
    const std::size_t first = (task % parts) * kChannelsPerTask;
    const std::size_t last = std::min(conv.channels, first + kChannelsPerTask);
    convolve(row, token, first, last, out + token * conv.channels);
  });
  advance_tail(conv, tokens, in, tail);
}

void kda_decay(const DecayGate& gate, float* z) noexcept {
  for (std::size_t h = 0; h < gate.heads; ++h) {
    for (std::size_t i = h * gate.width; i < (h + 1) * gate.width; ++i) {
      const float g = gate.lower_bound * sigmoid_contract(gate.rate[h] * (z[i] + gate.bias[i]));
      z[i] = exp_contract(g);
    }
  }
}

void kda_step(
    const KdaStep& step, std::size_t width, float* state, float* update, float* out) noexcept {
  std::fill_n(update, width, 0.0F);
  for (std::size_t i = 0; i < width; ++i) {
    float* row = state + i * width;
    for (std::size_t j = 0; j < width; ++j) {
      row[j] *= step.alpha[i];
      update[j] = std::fma(step.k[i], row[j], update[j]);
    }
  }
  for (std::size_t j = 0; j < width; ++j) {
    update[j] = step.beta * (step.v[j] - update[j]);
  }
  std::fill_n(out, width, 0.0F);
  for (std::size_t i = 0; i < width; ++i) {
    float* row = state + i * width;
    for (std::size_t j = 0; j < width; ++j) {
      row[j] = std::fma(step.k[i], update[j], row[j]);
      out[j] = std::fma(step.q[i], row[j], out[j]);
    }
  }
}

}  // namespace k3::kernels

#include "kernels/kda.h"

#include <algorithm>

#include "base/parallel.h"
#include "kernels/elementary.h"
#include "kernels/isa.h"

namespace k3::kernels {
namespace {

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
  const std::size_t work = std::min(conv.channels, kChannelsPerTask) * kTranscendentalWork;
  parallel_for(tokens * parts, work, [&](std::size_t task) {
    const std::size_t token = task / parts;
    const std::size_t first = (task % parts) * kChannelsPerTask;
    const std::size_t last = std::min(conv.channels, first + kChannelsPerTask);
    kernels().convolve(conv, {in, tail, token, first, last}, out + token * conv.channels);
  });
  advance_tail(conv, tokens, in, tail);
}

void kda_decay(const DecayGate& gate, float* z) noexcept {
  kernels().kda_decay(gate, z);
}

void kda_step(const KdaStep& step, std::size_t width, float* state, float* out) noexcept {
  kernels().kda_step(step, width, state, out);
}

}  // namespace k3::kernels

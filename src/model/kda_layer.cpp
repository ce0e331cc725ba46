// numerics.md 4: Kimi Delta Attention.

#include <cmath>

#include "base/parallel.h"
#include "kernels/activation.h"
#include "kernels/elementary.h"
#include "kernels/kda.h"
#include "kernels/norms.h"
#include "model/layer.h"

namespace k3::model {
namespace {

// One of q, k, v: projection, convolution over each sequence, SiLU.
struct ConvInput {
  TensorRole role;
  const Vector& taps;                    // [K][P]
  AlignedBuffer<float> KdaState::*tail;  // [K-1][P]
  float* out;                            // [T][P]
};

void project_and_convolve(const LayerContext& ctx, const ConvInput& input) {
  const ModelConfig& c = ctx.config;
  const std::size_t width = c.kda_width();
  float* raw = ctx.work.kda.raw;
  ctx.multiply(input.role, ctx.work.normed, c.hidden_size, raw, width);
  const kernels::ShortConv conv{c.short_conv_kernel_size, width, input.taps.data()};
  for (const TokenSpan& span : ctx.sequences) {
    float* tail = (span.state->kda(ctx.layer).*input.tail).data();
    const std::size_t offset = span.first * width;
    kernels::short_conv(conv, span.count, raw + offset, tail, input.out + offset);
  }
}

// q and k to unit length per head; q scaled by D^-0.5.
void normalise_queries_and_keys(const LayerContext& ctx) {
  const KdaScratch& w = ctx.work.kda;
  const std::size_t width = ctx.config.kda_head_dim;
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(width)));
  const std::size_t heads = ctx.tokens * ctx.config.kda_num_heads;
  parallel_ranges(heads, kernels::kSumRows, 4 * width, [&](std::size_t first, std::size_t last) {
    kernels::l2norm(w.q + first * width, last - first, width);
    for (std::size_t i = first * width; i < last * width; ++i) {
      w.q[i] *= scale;
    }
    kernels::l2norm(w.k + first * width, last - first, width);
  });
}

// alpha = exp(lower_bound * sigmoid(exp(A_log) * (Wf_b Wf_a x + dt_bias))), beta = sigmoid(Wb x)
void compute_gates(const LayerContext& ctx) {
  const ModelConfig& c = ctx.config;
  const KdaScratch& w = ctx.work.kda;
  ctx.multiply(TensorRole::kKdaFA, ctx.work.normed, c.hidden_size, w.f_a, c.kda_head_dim);
  ctx.multiply(TensorRole::kKdaFB, w.f_a, c.kda_head_dim, w.alpha, c.kda_width());
  ctx.multiply(TensorRole::kKdaB, ctx.work.normed, c.hidden_size, w.beta, c.kda_num_heads);
  const kernels::DecayGate gate{
      .heads = c.kda_num_heads,
      .width = c.kda_head_dim,
      .rate = ctx.vectors.decay_rate.data(),
      .bias = ctx.vectors.dt_bias.data(),
      .lower_bound = static_cast<float>(c.gate_lower_bound),
  };
  parallel_for(ctx.tokens, c.kda_width() * kernels::kTranscendentalWork, [&](std::size_t t) {
    kernels::kda_decay(gate, w.alpha + t * c.kda_width());
    kernels::sigmoid_in_place(w.beta + t * c.kda_num_heads, c.kda_num_heads);
  });
}

// The recurrence: heads are independent, tokens of a sequence follow each other.
void run_recurrence(const LayerContext& ctx) {
  const KdaScratch& w = ctx.work.kda;
  const std::size_t heads = ctx.config.kda_num_heads;
  const std::size_t width = ctx.config.kda_head_dim;
  const std::size_t work = ctx.tokens / ctx.sequences.size() * 4 * width * width;
  parallel_for(ctx.sequences.size() * heads, work, [&](std::size_t task) {
    const TokenSpan& span = ctx.sequences[task / heads];
    const std::size_t head = task % heads;
    float* state = span.state->kda(ctx.layer).state.data() + head * width * width;
    for (std::size_t t = span.first; t < span.first + span.count; ++t) {
      const std::size_t offset = (t * heads + head) * width;
      const kernels::KdaStep step{w.q + offset, w.k + offset, w.v + offset, w.alpha + offset,
                                  w.beta[t * heads + head]};
      kernels::kda_step(step, width, state, w.out + offset);
    }
  });
}

}  // namespace

void kda_attention(const LayerContext& ctx) {
  const ModelConfig& c = ctx.config;
  const LayerVectors& v = ctx.vectors;
  const KdaScratch& w = ctx.work.kda;
  const std::size_t width = c.kda_width();
  // 1. and 2. projections, convolutions, SiLU
  project_and_convolve(ctx, {TensorRole::kKdaQ, v.q_conv, &KdaState::q_tail, w.q});
  project_and_convolve(ctx, {TensorRole::kKdaK, v.k_conv, &KdaState::k_tail, w.k});
  project_and_convolve(ctx, {TensorRole::kKdaV, v.v_conv, &KdaState::v_tail, w.v});
  // 3. norms of q and k
  normalise_queries_and_keys(ctx);
  // 4. and 5. beta and the decay
  compute_gates(ctx);
  // 6. state update and read-out
  run_recurrence(ctx);
  // 7. norm per head, then the output gate, then Wo
  kernels::rmsnorm_rows(w.out, v.o_norm.data(), c.rms_norm_eps, ctx.tokens * c.kda_num_heads,
                        c.kda_head_dim, w.out);
  ctx.multiply(TensorRole::kGate, ctx.work.normed, c.hidden_size, w.raw, width);
  parallel_for(ctx.tokens, width * kernels::kTranscendentalWork, [&](std::size_t t) {
    kernels::multiply_by_sigmoid(w.raw + t * width, width, w.out + t * width);
  });
  ctx.multiply(TensorRole::kOut, w.out, width, ctx.work.branch, c.hidden_size);
}

}  // namespace k3::model

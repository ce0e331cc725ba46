// numerics.md 6: Stable LatentMoE and the dense MLP of the first layers.

#include <algorithm>
#include <atomic>
#include <span>
#include <string>

#include "k3/errors.h"

#include "base/parallel.h"
#include "kernels/activation.h"
#include "kernels/elementary.h"
#include "kernels/norms.h"
#include "kernels/routing.h"
#include "model/layer.h"

namespace k3::model {
namespace {

constexpr std::size_t kElementsPerTask = 1024;

kernels::SituBetas situ_betas(const ModelConfig& config) {
  return {static_cast<float>(config.situ_beta), static_cast<float>(config.situ_linear_beta)};
}

// gate[i] = situ_glu(gate[i], up[i])
void activate(const ModelConfig& config, float* gate, const float* up, std::size_t count) {
  const kernels::SituBetas betas = situ_betas(config);
  parallel_ranges(count, kElementsPerTask, kernels::kTranscendentalWork,
                  [=](std::size_t first, std::size_t last) {
                    kernels::situ_glu(gate + first, up + first, betas, last - first, gate + first);
                  });
}

// 1. Choices and combining weights of every token.
void route_tokens(const LayerContext& ctx) {
  const ModelConfig& c = ctx.config;
  const MoeScratch& w = ctx.work.moe;
  ctx.multiply(TensorRole::kRouter, ctx.work.normed, c.hidden_size, w.scores, c.num_experts);
  const kernels::Router router{
      .experts = c.num_experts,
      .top_k = c.num_experts_per_token,
      .bias = ctx.vectors.router_bias.data(),
      .renormalize = c.moe_renormalize,
      .scaling = c.routed_scaling_factor,
  };
  std::atomic<bool> finite = true;
  parallel_for(ctx.tokens, c.num_experts * kernels::kTranscendentalWork, [&](std::size_t t) {
    const std::size_t choice = t * c.num_experts_per_token;
    if (!kernels::route(router, w.scores + t * c.num_experts, w.chosen + choice,
                        w.weights + choice)) {
      finite = false;
    }
  });
  if (!finite) {
    throw Error(ErrorKind::kNonFinite, {.what = "a router score is not finite",
                                        .where = "layer " + std::to_string(ctx.layer)});
  }
}

// Groups the (token, choice) pairs by expert: entries of expert e are [first[e], first[e + 1]), in
// token order. Returns the distinct experts: the choices of the last token in their order, then what
// the tokens before it add, last first.
std::span<const std::uint32_t> group_by_expert(const LayerContext& ctx) {
  const ModelConfig& c = ctx.config;
  const MoeScratch& w = ctx.work.moe;
  const std::size_t top_k = c.num_experts_per_token;
  const std::size_t choices = ctx.tokens * top_k;
  std::fill_n(w.first, c.num_experts + 1, 0U);
  for (std::size_t choice = 0; choice < choices; ++choice) {
    ++w.first[w.chosen[choice] + 1];
  }
  for (std::uint32_t e = 0; e < c.num_experts; ++e) {
    w.first[e + 1] += w.first[e];
  }
  // first[e] walks to the end of its group and is shifted back below.
  for (std::size_t choice = 0; choice < choices; ++choice) {
    const std::uint32_t entry = w.first[w.chosen[choice]]++;
    w.entry[choice] = entry;
    w.token[entry] = static_cast<std::uint32_t>(choice / top_k);
  }
  std::copy_backward(w.first, w.first + c.num_experts, w.first + c.num_experts + 1);
  w.first[0] = 0;
  // An expert is named at the last token of its group.
  std::size_t distinct = 0;
  for (std::size_t token = ctx.tokens; token > 0; --token) {
    for (std::size_t choice = (token - 1) * top_k; choice < token * top_k; ++choice) {
      const std::uint32_t expert = w.chosen[choice];
      if (w.entry[choice] + 1 == w.first[expert + 1]) {
        w.distinct[distinct++] = expert;
      }
    }
  }
  return {w.distinct, distinct};
}

// 3. One expert applied to all tokens that chose it.
void run_expert(const LayerContext& ctx, const ExpertLease& lease) {
  const ModelConfig& c = ctx.config;
  const MoeScratch& w = ctx.work.moe;
  const std::size_t latent = c.routed_expert_hidden_size;
  const std::size_t inner = c.moe_intermediate_size;
  const std::size_t first = w.first[lease.expert()];
  const std::size_t count = w.first[lease.expert() + 1] - first;
  for (std::size_t i = 0; i < count; ++i) {
    std::copy_n(w.latent + w.token[first + i] * latent, latent, w.gathered + i * latent);
  }
  const kernels::Batch x{w.gathered, count, latent};
  kernels::multiply(lease.weights().w1, x, ctx.work.packed, {w.gate, inner});
  kernels::multiply(lease.weights().w3, x, ctx.work.packed, {w.up, inner});
  activate(c, w.gate, w.up, count * inner);
  kernels::multiply(lease.weights().w2, {w.gate, count, inner}, ctx.work.packed,
                    {w.contribution + first * latent, latent});
}

// 3. The weighted sum of a token's experts, in selection order.
void combine(const LayerContext& ctx) {
  const ModelConfig& c = ctx.config;
  const MoeScratch& w = ctx.work.moe;
  const std::size_t latent = c.routed_expert_hidden_size;
  const std::size_t top_k = c.num_experts_per_token;
  parallel_for(ctx.tokens, top_k * latent, [&](std::size_t t) {
    float* sum = w.sum + t * latent;
    std::fill_n(sum, latent, 0.0F);
    for (std::size_t choice = t * top_k; choice < (t + 1) * top_k; ++choice) {
      kernels::add_scaled(w.weights[choice], w.contribution + w.entry[choice] * latent, latent,
                          sum);
    }
  });
}

// down(situ_glu(gate(x), up(x))) of the dense MLP or of the shared experts, into work.branch.
struct GatedMlp {
  TensorRole gate_role, up_role, down_role;
  std::size_t width;
  float* gate;  // [T][width] scratch
  float* up;    // [T][width] scratch
};

void gated_mlp(const LayerContext& ctx, const GatedMlp& mlp) {
  const std::size_t hidden = ctx.config.hidden_size;
  ctx.multiply(mlp.gate_role, ctx.work.normed, hidden, mlp.gate, mlp.width);
  ctx.multiply(mlp.up_role, ctx.work.normed, hidden, mlp.up, mlp.width);
  activate(ctx.config, mlp.gate, mlp.up, ctx.tokens * mlp.width);
  ctx.multiply(mlp.down_role, mlp.gate, mlp.width, ctx.work.branch, hidden);
}

}  // namespace

void latent_moe(const LayerContext& ctx) {
  using enum TensorRole;
  const ModelConfig& c = ctx.config;
  const MoeScratch& w = ctx.work.moe;
  const std::size_t latent = c.routed_expert_hidden_size;
  // 1. the router, on the full width; the experts are on their way from here on
  route_tokens(ctx);
  const std::span<const std::uint32_t> distinct = group_by_expert(ctx);
  ctx.experts.request(ctx.layer, distinct);
  // 2. the latent, and 6. the shared experts, while the routed ones arrive
  ctx.multiply(kLatentDown, ctx.work.normed, c.hidden_size, w.latent, latent);
  gated_mlp(ctx,
            {kSharedGate, kSharedUp, kSharedDown, c.shared_width(), w.shared_gate, w.shared_up});
  // 3. routed experts in order of arrival, their sum in order of selection
  for (std::size_t i = 0; i < distinct.size(); ++i) {
    run_expert(ctx, ctx.experts.next());
  }
  combine(ctx);
  // 4. the norm of the aggregate
  if (c.latent_moe_use_norm) {
    kernels::rmsnorm_rows(w.sum, ctx.vectors.latent_norm.data(), c.rms_norm_eps, ctx.tokens, latent,
                          w.sum);
  }
  // 5. back to the full width, and 6. the shared experts added without weight
  ctx.multiply(kLatentUp, w.sum, latent, w.routed, c.hidden_size);
  parallel_ranges(ctx.tokens * c.hidden_size, kElementsPerTask, 1,
                  [&](std::size_t first, std::size_t last) {
                    for (std::size_t i = first; i < last; ++i) {
                      ctx.work.branch[i] = w.routed[i] + ctx.work.branch[i];
                    }
                  });
}

void dense_mlp(const LayerContext& ctx) {
  using enum TensorRole;
  gated_mlp(ctx, {kDenseGate, kDenseUp, kDenseDown, ctx.config.intermediate_size,
                  ctx.work.dense.gate, ctx.work.dense.up});
}

}  // namespace k3::model

#include "model/workspace.h"

#include <algorithm>

#include "kernels/attention.h"
#include "kernels/products.h"

namespace k3::model {
namespace {

KdaScratch carve_kda(Carver& carver, const ModelConfig& c, std::size_t tokens) {
  const std::size_t width = tokens * c.kda_width();
  return KdaScratch{
      .raw = carver.take<float>(width),
      .q = carver.take<float>(width),
      .k = carver.take<float>(width),
      .v = carver.take<float>(width),
      .f_a = carver.take<float>(tokens * c.kda_head_dim),
      .alpha = carver.take<float>(width),
      .beta = carver.take<float>(tokens * c.kda_num_heads),
      .out = carver.take<float>(width),
  };
}

MlaScratch carve_mla(Carver& carver, const ModelConfig& c, std::size_t tokens) {
  const std::size_t heads = tokens * c.num_attention_heads;
  return MlaScratch{
      .q_a = carver.take<float>(tokens * c.q_lora_rank),
      .q = carver.take<float>(heads * c.qk_head_dim()),
      .kv_a = carver.take<float>(tokens * c.latent_width()),
      .absorbed = carver.take<float>(heads * c.latent_width()),
      .context = carver.take<float>(heads * c.kv_lora_rank),
      .value = carver.take<float>(heads * c.v_head_dim),
      .gate = carver.take<float>(heads * c.v_head_dim),
      .attention = carver.take<float>(kernels::latent_attention_scratch_floats(
          c.kv_lora_rank, c.qk_rope_head_dim, c.num_attention_heads, tokens)),
      .packed_context = carver.take<float>(c.num_attention_heads *
                                           kernels::product_scratch_floats(c.kv_lora_rank, tokens)),
  };
}

DenseScratch carve_dense(Carver& carver, const ModelConfig& c, std::size_t tokens) {
  return DenseScratch{
      .gate = carver.take<float>(tokens * c.intermediate_size),
      .up = carver.take<float>(tokens * c.intermediate_size),
  };
}

MoeScratch carve_moe(Carver& carver, const ModelConfig& c, std::size_t tokens) {
  const std::size_t entries = tokens * c.num_experts_per_token;
  const std::size_t latent = c.routed_expert_hidden_size;
  return MoeScratch{
      .scores = carver.take<float>(tokens * c.num_experts),
      .chosen = carver.take<std::uint32_t>(entries),
      .weights = carver.take<float>(entries),
      .first = carver.take<std::uint32_t>(c.num_experts + 1),
      .token = carver.take<std::uint32_t>(entries),
      .entry = carver.take<std::uint32_t>(entries),
      .distinct = carver.take<std::uint32_t>(c.num_experts),
      .latent = carver.take<float>(tokens * latent),
      .shared_gate = carver.take<float>(tokens * c.shared_width()),
      .shared_up = carver.take<float>(tokens * c.shared_width()),
      .gathered = carver.take<float>(tokens * latent),
      .gate = carver.take<float>(tokens * c.moe_intermediate_size),
      .up = carver.take<float>(tokens * c.moe_intermediate_size),
      .contribution = carver.take<float>(entries * latent),
      .sum = carver.take<float>(tokens * latent),
      .routed = carver.take<float>(tokens * c.hidden_size),
  };
}

// The widest row of any matrix.
std::size_t widest_input(const ModelConfig& c) {
  return std::max({c.hidden_size, c.kda_width(), c.q_lora_rank,
                   c.num_attention_heads * c.v_head_dim, c.intermediate_size, c.shared_width(),
                   c.routed_expert_hidden_size, c.moe_intermediate_size});
}

}  // namespace

void Workspace::carve(Carver& carver, const ModelConfig& config, std::size_t tokens) {
  const std::size_t width = tokens * config.hidden_size;
  spans = carver.take<TokenSpan>(tokens);
  sources = carver.take<const float*>(snapshot_count(config) + 1);
  residual = carver.take<float>(width);
  snapshots = carver.take<float>(snapshot_count(config) * width);
  aggregated = carver.take<float>(width);
  normed = carver.take<float>(width);
  branch = carver.take<float>(width);
  scores = carver.take<float>(tokens * (snapshot_count(config) + 1));
  packed = carver.take<float>(kernels::product_scratch_floats(widest_input(config), tokens));
  const std::size_t shared = carver.mark();
  kda = carve_kda(carver, config, tokens);
  carver.rewind(shared);
  mla = carve_mla(carver, config, tokens);
  carver.rewind(shared);
  dense = carve_dense(carver, config, tokens);
  carver.rewind(shared);
  moe = carve_moe(carver, config, tokens);
}

std::size_t Workspace::bytes(const ModelConfig& config, std::size_t tokens) {
  Carver measure;
  Workspace layout;
  layout.carve(measure, config, tokens);
  return measure.peak_bytes();
}

Workspace::Workspace(const ModelConfig& config, std::size_t tokens)
    : capacity_(tokens), memory_(bytes(config, tokens)) {
  Carver carver(memory_);
  carve(carver, config, tokens);
}

}  // namespace k3::model

#include "model/tensor_plan.h"

#include <initializer_list>
#include <string>

namespace k3::model {
namespace {

using Visit = std::function<void(const TensorSpec&)>;

constexpr std::string_view kModelPrefix = "language_model.";
constexpr std::uint64_t kGroup = 32;  // elements per MXFP4 scale

// Declares tensors of one place (the model or one layer) to a visitor.
class Declarer {
 public:
  Declarer(std::string prefix, std::size_t layer, std::size_t expert, const Visit& visit)
      : prefix_(std::move(prefix)), visit_(visit) {
    spec_.layer = layer;
    spec_.expert = expert;
  }

  void vector(TensorRole role, std::string_view name, std::initializer_list<std::uint64_t> shape) {
    declare(TensorKind::kVector, role, name, shape);
  }

  void matrix(TensorRole role, std::string_view name, std::uint64_t rows, std::uint64_t cols) {
    declare(TensorKind::kMatrix, role, name, {rows, cols});
  }

  void declare(TensorKind kind,
               TensorRole role,
               std::string_view name,
               std::initializer_list<std::uint64_t> shape) {
    spec_.name.assign(prefix_).append(name);
    spec_.kind = kind;
    spec_.role = role;
    spec_.rank = shape.size();
    spec_.shape = {};
    std::size_t axis = 0;
    for (const std::uint64_t extent : shape) {
      spec_.shape[axis++] = extent;
    }
    visit_(spec_);
  }

  // Applies to the declarations that follow.
  void set_used(bool used) { spec_.used = used; }

  void set_longer_ok(bool longer_ok) { spec_.longer_ok = longer_ok; }

 private:
  std::string prefix_;
  const Visit& visit_;
  TensorSpec spec_;
};

std::string layer_prefix(std::size_t layer) {
  return std::string(kModelPrefix) + "model.layers." + std::to_string(layer) + ".";
}

void declare_kda(Declarer& d, const ModelConfig& c) {
  using enum TensorRole;
  const std::uint64_t width = c.kda_width();
  d.matrix(kKdaQ, "self_attn.q_proj.weight", width, c.hidden_size);
  d.matrix(kKdaK, "self_attn.k_proj.weight", width, c.hidden_size);
  d.matrix(kKdaV, "self_attn.v_proj.weight", width, c.hidden_size);
  d.vector(kKdaQConv, "self_attn.q_conv1d.weight", {width, 1, c.short_conv_kernel_size});
  d.vector(kKdaKConv, "self_attn.k_conv1d.weight", {width, 1, c.short_conv_kernel_size});
  d.vector(kKdaVConv, "self_attn.v_conv1d.weight", {width, 1, c.short_conv_kernel_size});
  d.matrix(kKdaFA, "self_attn.f_a_proj.weight", c.kda_head_dim, c.hidden_size);
  d.matrix(kKdaFB, "self_attn.f_b_proj.weight", width, c.kda_head_dim);
  d.set_longer_ok(true);
  d.vector(kKdaALog, "self_attn.A_log", {c.kda_num_heads});
  d.set_longer_ok(false);
  d.vector(kKdaDtBias, "self_attn.dt_bias", {width});
  d.matrix(kKdaB, "self_attn.b_proj.weight", c.kda_num_heads, c.hidden_size);
  d.vector(kKdaONorm, "self_attn.o_norm.weight", {c.kda_head_dim});
  d.matrix(kGate, "self_attn.g_proj.weight", width, c.hidden_size);
  d.matrix(kOut, "self_attn.o_proj.weight", c.hidden_size, width);
}

void declare_mla(Declarer& d, const ModelConfig& c) {
  using enum TensorRole;
  const std::uint64_t heads = c.num_attention_heads;
  d.matrix(kMlaQA, "self_attn.q_a_proj.weight", c.q_lora_rank, c.hidden_size);
  d.vector(kMlaQANorm, "self_attn.q_a_layernorm.weight", {c.q_lora_rank});
  d.matrix(kMlaQB, "self_attn.q_b_proj.weight", heads * c.qk_head_dim(), c.q_lora_rank);
  d.matrix(kMlaKvA, "self_attn.kv_a_proj_with_mqa.weight", c.latent_width(), c.hidden_size);
  d.vector(kMlaKvANorm, "self_attn.kv_a_layernorm.weight", {c.kv_lora_rank});
  d.matrix(kMlaKvB, "self_attn.kv_b_proj.weight", heads * (c.qk_nope_head_dim + c.v_head_dim),
           c.kv_lora_rank);
  d.set_used(c.mla_use_output_gate);
  d.matrix(kGate, "self_attn.g_proj.weight", heads * c.v_head_dim, c.hidden_size);
  d.set_used(true);
  d.matrix(kOut, "self_attn.o_proj.weight", c.hidden_size, heads * c.v_head_dim);
}

void declare_dense(Declarer& d, const ModelConfig& c) {
  using enum TensorRole;
  d.matrix(kDenseGate, "mlp.gate_proj.weight", c.intermediate_size, c.hidden_size);
  d.matrix(kDenseUp, "mlp.up_proj.weight", c.intermediate_size, c.hidden_size);
  d.matrix(kDenseDown, "mlp.down_proj.weight", c.hidden_size, c.intermediate_size);
}

void declare_moe(Declarer& d, const ModelConfig& c) {
  using enum TensorRole;
  const std::uint64_t latent = c.routed_expert_hidden_size;
  const std::uint64_t shared = c.shared_width();
  d.matrix(kRouter, "block_sparse_moe.gate.weight", c.num_experts, c.hidden_size);
  d.vector(kRouterBias, "block_sparse_moe.gate.e_score_correction_bias", {c.num_experts});
  d.matrix(kLatentDown, "block_sparse_moe.routed_expert_down_proj.weight", latent, c.hidden_size);
  d.matrix(kSharedGate, "block_sparse_moe.shared_experts.gate_proj.weight", shared, c.hidden_size);
  d.matrix(kSharedUp, "block_sparse_moe.shared_experts.up_proj.weight", shared, c.hidden_size);
  d.matrix(kSharedDown, "block_sparse_moe.shared_experts.down_proj.weight", c.hidden_size, shared);
  d.set_used(c.latent_moe_use_norm);
  d.vector(kLatentNorm, "block_sparse_moe.routed_expert_norm.weight", {latent});
  d.set_used(true);
  d.matrix(kLatentUp, "block_sparse_moe.routed_expert_up_proj.weight", c.hidden_size, latent);
}

}  // namespace

void for_each_trunk_tensor(const ModelConfig& config, std::size_t layer, const Visit& visit) {
  using enum TensorRole;
  const std::uint64_t hidden = config.hidden_size;
  Declarer d(layer_prefix(layer), layer, kNoIndex, visit);
  d.vector(kAttentionResNorm, "self_attention_res_norm.weight", {hidden});
  d.vector(kAttentionResProj, "self_attention_res_proj.weight", {1, hidden});
  d.vector(kInputNorm, "input_layernorm.weight", {hidden});
  if (config.is_mla[layer]) {
    declare_mla(d, config);
  } else {
    declare_kda(d, config);
  }
  d.vector(kMlpResNorm, "mlp_res_norm.weight", {hidden});
  d.vector(kMlpResProj, "mlp_res_proj.weight", {1, hidden});
  d.vector(kPostAttentionNorm, "post_attention_layernorm.weight", {hidden});
  if (config.is_dense(layer)) {
    declare_dense(d, config);
  } else {
    declare_moe(d, config);
  }
}

void for_each_expert_tensor(const ModelConfig& config,
                            std::size_t layer,
                            std::size_t expert,
                            const Visit& visit) {
  using enum TensorRole;
  using enum TensorKind;
  const std::uint64_t latent = config.routed_expert_hidden_size;
  const std::uint64_t inner = config.moe_intermediate_size;
  Declarer d(layer_prefix(layer) + "block_sparse_moe.experts." + std::to_string(expert) + ".",
             layer, expert, visit);
  d.declare(kPacked, kExpertW1, "w1.weight_packed", {inner, latent / 2});
  d.declare(kScale, kExpertW1Scale, "w1.weight_scale", {inner, latent / kGroup});
  d.declare(kPacked, kExpertW2, "w2.weight_packed", {latent, inner / 2});
  d.declare(kScale, kExpertW2Scale, "w2.weight_scale", {latent, inner / kGroup});
  d.declare(kPacked, kExpertW3, "w3.weight_packed", {inner, latent / 2});
  d.declare(kScale, kExpertW3Scale, "w3.weight_scale", {inner, latent / kGroup});
}

void for_each_model_tensor(const ModelConfig& config, const Visit& visit) {
  using enum TensorRole;
  const std::uint64_t hidden = config.hidden_size;
  Declarer d(std::string(kModelPrefix), kNoIndex, kNoIndex, visit);
  d.matrix(kEmbedding, "model.embed_tokens.weight", config.vocab_size, hidden);
  d.vector(kOutputResNorm, "model.output_attn_res_norm.weight", {hidden});
  d.vector(kOutputResProj, "model.output_attn_res_proj.weight", {1, hidden});
  d.vector(kFinalNorm, "model.norm.weight", {hidden});
  d.matrix(kHead, "lm_head.weight", config.vocab_size, hidden);
}

void for_each_tensor(const ModelConfig& config, const Visit& visit) {
  for (std::size_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    for_each_trunk_tensor(config, layer, visit);
    if (!config.is_dense(layer)) {
      for (std::size_t expert = 0; expert < config.num_experts; ++expert) {
        for_each_expert_tensor(config, layer, expert, visit);
      }
    }
  }
  for_each_model_tensor(config, visit);
}

void for_each_tape_matrix(const ModelConfig& config, const Visit& visit) {
  const Visit matrices = [&visit](const TensorSpec& spec) {
    if (spec.kind == TensorKind::kMatrix && spec.used && spec.role != TensorRole::kEmbedding) {
      visit(spec);
    }
  };
  for (std::size_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    for_each_trunk_tensor(config, layer, matrices);
  }
  for_each_model_tensor(config, matrices);
}

}  // namespace k3::model

#include "replica_config.h"

#include <cstddef>
#include <sstream>
#include <string_view>

#include "replica.h"

namespace k3::tools {
namespace {

// Collects the members of one JSON object.
class ObjectWriter {
 public:
  ObjectWriter() {
    text_.precision(17);
    text_ << std::boolalpha;
  }

  // A number, true, false, or JSON text.
  template <typename Value>
  void add(std::string_view key, const Value& value) {
    text_ << (empty_ ? "" : ", ") << '"' << key << "\": " << value;
    empty_ = false;
  }

  [[nodiscard]] std::string text() const { return "{" + text_.str() + "}"; }

 private:
  std::ostringstream text_;
  bool empty_ = true;
};

// One-based numbers of the layers of one kind.
std::string layer_list(const ModelConfig& config, bool mla) {
  std::string text;
  for (std::size_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    if (config.is_mla[layer] == mla) {
      text += (text.empty() ? "" : ", ") + std::to_string(layer + 1);
    }
  }
  return "[" + text + "]";
}

std::string linear_attn_text(const ModelConfig& config) {
  ObjectWriter object;
  object.add("num_heads", config.kda_num_heads);
  object.add("head_dim", config.kda_head_dim);
  object.add("short_conv_kernel_size", config.short_conv_kernel_size);
  object.add("gate_lower_bound", config.gate_lower_bound);
  object.add("use_full_rank_gate", true);
  object.add("full_attn_layers", layer_list(config, true));
  object.add("kda_layers", layer_list(config, false));
  return object.text();
}

}  // namespace

std::string config_text(const ModelConfig& config) {
  ObjectWriter text;
  text.add("hidden_size", config.hidden_size);
  text.add("num_hidden_layers", config.num_hidden_layers);
  text.add("vocab_size", config.vocab_size);
  text.add("rms_norm_eps", config.rms_norm_eps);
  text.add("hidden_act", "\"situ\"");
  text.add("linear_attn_config", linear_attn_text(config));
  text.add("num_attention_heads", config.num_attention_heads);
  text.add("q_lora_rank", config.q_lora_rank);
  text.add("kv_lora_rank", config.kv_lora_rank);
  text.add("qk_nope_head_dim", config.qk_nope_head_dim);
  text.add("qk_rope_head_dim", config.qk_rope_head_dim);
  text.add("v_head_dim", config.v_head_dim);
  text.add("mla_use_output_gate", config.mla_use_output_gate);
  text.add("num_experts", config.num_experts);
  text.add("num_experts_per_token", config.num_experts_per_token);
  text.add("num_shared_experts", config.num_shared_experts);
  text.add("routed_expert_hidden_size", config.routed_expert_hidden_size);
  text.add("moe_intermediate_size", config.moe_intermediate_size);
  text.add("routed_scaling_factor", config.routed_scaling_factor);
  text.add("moe_renormalize", config.moe_renormalize);
  text.add("latent_moe_use_norm", config.latent_moe_use_norm);
  text.add("first_k_dense_replace", config.first_k_dense_replace);
  text.add("intermediate_size", config.intermediate_size);
  text.add("attn_res_block_size", config.attn_res_block_size);
  text.add("activation_situ_beta", config.situ_beta);
  text.add("activation_situ_linear_beta", config.situ_linear_beta);
  text.add("quantization_config",
           R"({"format": "mxfp4-pack-quantized", "config_groups": {"group_0": )"
           R"({"format": "mxfp4-pack-quantized", "weights": {"group_size": 32}}}})");
  ObjectWriter root;
  root.add("model_type", "\"kimi_k3\"");
  root.add("text_config", text.text());
  return root.text() + "\n";
}

ModelConfig released_config() {
  ModelConfig config;
  config.hidden_size = 7168;
  config.num_hidden_layers = 93;
  config.vocab_size = 163840;
  config.rms_norm_eps = 1e-5;
  config.kda_num_heads = 96;
  config.kda_head_dim = 128;
  config.short_conv_kernel_size = 4;
  config.gate_lower_bound = -5.0;
  config.is_mla.resize(config.num_hidden_layers);
  for (std::size_t layer = 3; layer < config.num_hidden_layers; layer += 4) {
    config.is_mla[layer] = true;
  }
  config.is_mla.back() = true;
  config.num_attention_heads = 96;
  config.q_lora_rank = 1536;
  config.kv_lora_rank = 512;
  config.qk_nope_head_dim = 128;
  config.qk_rope_head_dim = 64;
  config.v_head_dim = 128;
  config.mla_use_output_gate = true;
  config.num_experts = 896;
  config.num_experts_per_token = 16;
  config.num_shared_experts = 2;
  config.routed_expert_hidden_size = 3584;
  config.moe_intermediate_size = 3072;
  config.routed_scaling_factor = 1.0;
  config.moe_renormalize = true;
  config.latent_moe_use_norm = true;
  config.first_k_dense_replace = 1;
  config.intermediate_size = 33792;
  config.attn_res_block_size = 12;
  config.situ_beta = 4.0;
  config.situ_linear_beta = 25.0;
  return config;
}

}  // namespace k3::tools

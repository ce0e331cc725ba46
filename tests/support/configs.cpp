#include "support/configs.h"

namespace k3::test {
namespace {

using nlohmann::json;

// Keys whose names and place are the same in both shapes, below text_config in the nested one.
const std::vector<std::string>& common_keys() {
  static const std::vector<std::string> kKeys = {"hidden_size",
                                                 "num_hidden_layers",
                                                 "vocab_size",
                                                 "rms_norm_eps",
                                                 "num_attention_heads",
                                                 "q_lora_rank",
                                                 "kv_lora_rank",
                                                 "qk_nope_head_dim",
                                                 "qk_rope_head_dim",
                                                 "v_head_dim",
                                                 "mla_use_output_gate",
                                                 "num_experts",
                                                 "num_experts_per_token",
                                                 "num_shared_experts",
                                                 "routed_expert_hidden_size",
                                                 "moe_intermediate_size",
                                                 "routed_scaling_factor",
                                                 "moe_renormalize",
                                                 "latent_moe_use_norm",
                                                 "first_k_dense_replace",
                                                 "intermediate_size",
                                                 "attn_res_block_size"};
  return kKeys;
}

}  // namespace

json flat_config() {
  return json::parse(R"({
    "hidden_size": 128, "num_hidden_layers": 5, "vocab_size": 256, "rms_norm_eps": 1e-05,
    "kda_num_heads": 4, "kda_head_dim": 16, "short_conv_kernel_size": 3,
    "gate_lower_bound": -5.0, "full_attn_layers": [4, 5],
    "num_attention_heads": 6, "q_lora_rank": 64, "kv_lora_rank": 40, "qk_nope_head_dim": 24,
    "qk_rope_head_dim": 8, "v_head_dim": 20, "mla_use_output_gate": true,
    "num_experts": 9, "num_experts_per_token": 2, "num_shared_experts": 3,
    "routed_expert_hidden_size": 64, "moe_intermediate_size": 96, "routed_scaling_factor": 1.5,
    "moe_renormalize": false, "latent_moe_use_norm": true,
    "first_k_dense_replace": 1, "intermediate_size": 112, "attn_res_block_size": 2,
    "situ_beta": 4.0, "situ_linear_beta": 25.0
  })");
}

json nested_config() {
  const json flat = flat_config();
  json text;
  for (const std::string& key : common_keys()) {
    text[key] = flat[key];
  }
  text["activation_situ_beta"] = flat["situ_beta"];
  text["activation_situ_linear_beta"] = flat["situ_linear_beta"];
  text["linear_attn_config"] = {{"num_heads", flat["kda_num_heads"]},
                                {"head_dim", flat["kda_head_dim"]},
                                {"short_conv_kernel_size", flat["short_conv_kernel_size"]},
                                {"gate_lower_bound", flat["gate_lower_bound"]},
                                {"full_attn_layers", flat["full_attn_layers"]}};
  text["quantization_config"] = {{"format", "mxfp4-pack-quantized"}, {"group_size", 32}};
  return {{"text_config", text}, {"vision_config", {{"hidden_size", 16}}}};
}

std::vector<std::string> required_paths(bool nested) {
  std::vector<std::string> paths;
  for (const std::string& key : common_keys()) {
    paths.push_back((nested ? "text_config." : "") + key);
  }
  for (const char* key : {"situ_beta", "situ_linear_beta"}) {
    paths.push_back((nested ? "text_config.activation_" : "") + std::string(key));
  }
  const std::string kda = nested ? "text_config.linear_attn_config." : "";
  for (const char* key : {"num_heads", "head_dim"}) {
    paths.push_back(kda + (nested ? "" : "kda_") + key);
  }
  for (const char* key : {"short_conv_kernel_size", "gate_lower_bound", "full_attn_layers"}) {
    paths.push_back(kda + key);
  }
  return paths;
}

std::vector<std::string> size_paths() {
  std::vector<std::string> paths = {"kda_num_heads", "kda_head_dim", "short_conv_kernel_size"};
  for (const std::string& key : common_keys()) {
    if (flat_config()[key].is_number_integer()) {
      paths.push_back(key);
    }
  }
  return paths;
}

ModelConfig released_values() {
  ModelConfig config;
  config.hidden_size = 7168;
  config.num_hidden_layers = 93;
  config.vocab_size = 163840;
  config.rms_norm_eps = 1e-5;
  config.kda_num_heads = 96;
  config.kda_head_dim = 128;
  config.short_conv_kernel_size = 4;
  config.gate_lower_bound = -5.0;
  for (std::size_t number = 1; number <= 93; ++number) {
    config.is_mla.push_back(number % 4 == 0 || number == 93);
  }
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

}  // namespace k3::test

// Dimensions and constants of a model, read from its config.json and never assumed.
#pragma once

#include <cstddef>
#include <vector>

namespace k3 {

// Released values stand in comments. Layers are zero-based everywhere but in `full_attn_layers`
// of the file itself. Every size is positive once the config has been read.
struct ModelConfig {
  std::size_t hidden_size = 0;        // E (7168)
  std::size_t num_hidden_layers = 0;  // (93)
  std::size_t vocab_size = 0;         // V (163840)
  double rms_norm_eps = 0.0;          // every rmsnorm, the MLA latent norms included (1e-5)

  // Kimi Delta Attention
  std::size_t kda_num_heads = 0;           // H (96)
  std::size_t kda_head_dim = 0;            // D (128)
  std::size_t short_conv_kernel_size = 0;  // K (4)
  double gate_lower_bound = 0.0;           // (-5)

  // Gated MLA
  std::vector<bool> is_mla;             // [layer]: Gated MLA, else KDA
  std::size_t num_attention_heads = 0;  // (96)
  std::size_t q_lora_rank = 0;          // (1536)
  std::size_t kv_lora_rank = 0;         // (512)
  std::size_t qk_nope_head_dim = 0;     // (128)
  std::size_t qk_rope_head_dim = 0;     // (64)
  std::size_t v_head_dim = 0;           // (128)
  bool mla_use_output_gate = false;     // (true)

  // Stable LatentMoE
  std::size_t num_experts = 0;                // N (896)
  std::size_t num_experts_per_token = 0;      // (16)
  std::size_t num_shared_experts = 0;         // S (2)
  std::size_t routed_expert_hidden_size = 0;  // L (3584)
  std::size_t moe_intermediate_size = 0;      // I (3072)
  double routed_scaling_factor = 0.0;
  bool moe_renormalize = false;
  bool latent_moe_use_norm = false;

  // Dense MLP of the first layers
  std::size_t first_k_dense_replace = 0;  // (1); may be 0
  std::size_t intermediate_size = 0;      // F (33792)

  std::size_t attn_res_block_size = 0;  // (12)
  double situ_beta = 0.0;               // (4)
  double situ_linear_beta = 0.0;        // (25)

  // Derived sizes.
  [[nodiscard]] std::size_t kda_width() const { return kda_num_heads * kda_head_dim; }

  [[nodiscard]] std::size_t qk_head_dim() const { return qk_nope_head_dim + qk_rope_head_dim; }

  [[nodiscard]] std::size_t latent_width() const { return kv_lora_rank + qk_rope_head_dim; }

  [[nodiscard]] std::size_t shared_width() const {
    return moe_intermediate_size * num_shared_experts;
  }

  [[nodiscard]] bool is_dense(std::size_t layer) const { return layer < first_k_dense_replace; }

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

}  // namespace k3

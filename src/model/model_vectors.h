// The small vectors of a model: resident, float32, folded and transposed once at load.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "k3/config.h"

#include "base/aligned_buffer.h"
#include "model/weights.h"

namespace k3::model {

using Vector = AlignedBuffer<float>;

// Of one layer. Vectors that the layer's kind does not have are empty.
struct LayerVectors {
  Vector attention_res;  // [E] self_attention_res_norm * self_attention_res_proj
  Vector input_norm;     // [E]
  Vector mlp_res;        // [E] mlp_res_norm * mlp_res_proj
  Vector post_norm;      // [E] post_attention_layernorm

  // KDA
  Vector q_conv, k_conv, v_conv;  // [K][P] taps, oldest first
  Vector decay_rate;              // [H] exp(A_log)
  Vector dt_bias;                 // [H][D]
  Vector o_norm;                  // [D]

  // MLA
  Vector q_a_norm;   // [q_lora]
  Vector kv_a_norm;  // [kv_lora]

  // MoE
  Vector router_bias;  // [N]
  Vector latent_norm;  // [L]; empty when latent_moe_use_norm is off
};

struct ModelVectors {
  std::vector<LayerVectors> layers;
  Vector output_res;  // [E] output_attn_res_norm * output_attn_res_proj
  Vector final_norm;  // [E]

  // Every vector, also those that are empty, in an order that is always the same.
  void for_each(const std::function<void(std::span<const float>)>& visit) const;

  [[nodiscard]] std::size_t bytes() const;
};

// ModelVectors::bytes() of a model that is not loaded.
[[nodiscard]] std::size_t vector_bytes(const ModelConfig& config);

// Reads every vector that the configuration uses.
[[nodiscard]] ModelVectors load_vectors(const ModelConfig& config, VectorReader& reader);

}  // namespace k3::model

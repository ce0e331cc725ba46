// In which order a layer announces its experts: caches take it for a hint.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "model/layer.h"
#include "support/memory_weights.h"
#include "support/numbers.h"

namespace k3::model {
namespace {

constexpr std::size_t kTokens = 5;
constexpr std::size_t kLayer = 1;

ModelConfig small_config() {
  return {.hidden_size = 64,
          .num_hidden_layers = 2,
          .vocab_size = 8,
          .rms_norm_eps = 1e-5,
          .kda_num_heads = 1,
          .kda_head_dim = 16,
          .short_conv_kernel_size = 4,
          .gate_lower_bound = -5.0,
          .is_mla = {false, true},
          .num_attention_heads = 1,
          .q_lora_rank = 16,
          .kv_lora_rank = 16,
          .qk_nope_head_dim = 16,
          .qk_rope_head_dim = 8,
          .v_head_dim = 16,
          .mla_use_output_gate = true,
          .num_experts = 16,
          .num_experts_per_token = 4,
          .num_shared_experts = 1,
          .routed_expert_hidden_size = 32,
          .moe_intermediate_size = 32,
          .routed_scaling_factor = 1.0,
          .moe_renormalize = true,
          .latent_moe_use_norm = false,
          .first_k_dense_replace = 1,
          .intermediate_size = 32,
          .attn_res_block_size = 3,
          .situ_beta = 4.0,
          .situ_linear_beta = 25.0};
}

TEST(ExpertRequest, TheLastTokensChoicesComeFirst) {
  using enum TensorRole;
  const ModelConfig c = small_config();
  test::MemoryTape tape;
  unsigned seed = 0;
  const auto add = [&](TensorRole role, std::size_t rows, std::size_t cols) {
    tape.add({kLayer, role}, rows, cols, test::normal_values(rows * cols, ++seed, 0.1F));
  };
  add(kRouter, c.num_experts, c.hidden_size);
  add(kLatentDown, c.routed_expert_hidden_size, c.hidden_size);
  add(kSharedGate, c.shared_width(), c.hidden_size);
  add(kSharedUp, c.shared_width(), c.hidden_size);
  add(kSharedDown, c.hidden_size, c.shared_width());
  add(kLatentUp, c.hidden_size, c.routed_expert_hidden_size);
  test::MemoryExperts experts(c.routed_expert_hidden_size, c.moe_intermediate_size);
  const std::size_t count = c.routed_expert_hidden_size * c.moe_intermediate_size;
  for (std::size_t expert = 0; expert < c.num_experts; ++expert) {
    const std::vector<float> values = test::normal_values(count, ++seed);
    experts.add({values, values, values});
  }
  LayerVectors vectors;
  vectors.router_bias = Vector(c.num_experts);
  Workspace work(c, kTokens);
  std::ranges::copy(test::normal_values(kTokens * c.hidden_size, ++seed), work.normed);
  latent_moe({c, kLayer, vectors, tape, experts, work, {}, kTokens});

  std::vector<std::uint32_t> expected;
  for (std::size_t token = kTokens; token > 0; --token) {
    for (std::size_t j = 0; j < c.num_experts_per_token; ++j) {
      const std::uint32_t expert = work.moe.chosen[(token - 1) * c.num_experts_per_token + j];
      if (std::ranges::find(expected, expert) == expected.end()) {
        expected.push_back(expert);
      }
    }
  }
  EXPECT_GT(expected.size(), c.num_experts_per_token);
  EXPECT_EQ(experts.announced(), expected);
}

}  // namespace
}  // namespace k3::model

// Whole stages and layers against recordings of others.

#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/elementary.h"
#include "model/layer.h"
#include "support/memory_weights.h"
#include "support/numbers.h"
#include "support/paths.h"
#include "support/peer_data.h"

namespace k3::model {
namespace {

using test::peer_match;
using test::PeerData;

// Dimensions of ../shared/peer/ops/MANIFEST.json.
ModelConfig peer_config() {
  return {.hidden_size = 128,
          .num_hidden_layers = 13,
          .vocab_size = 256,
          .rms_norm_eps = 1e-5,
          .kda_num_heads = 4,
          .kda_head_dim = 16,
          .short_conv_kernel_size = 4,
          .gate_lower_bound = -5.0,
          .is_mla = {false, false, false, true, false, false, false, true, false, false, false,
                     true, true},
          .num_attention_heads = 4,
          .q_lora_rank = 64,
          .kv_lora_rank = 32,
          .qk_nope_head_dim = 24,
          .qk_rope_head_dim = 8,
          .v_head_dim = 16,
          .mla_use_output_gate = true,
          .num_experts = 8,
          .num_experts_per_token = 2,
          .num_shared_experts = 2,
          .routed_expert_hidden_size = 64,
          .moe_intermediate_size = 48,
          .routed_scaling_factor = 1.0,
          .moe_renormalize = true,
          .latent_moe_use_norm = true,
          .first_k_dense_replace = 1,
          .intermediate_size = 96,
          .attn_res_block_size = 3,
          .situ_beta = 4.0,
          .situ_linear_beta = 25.0};
}

Vector to_vector(const std::vector<float>& values) {
  Vector vector(values.size());
  std::copy(values.begin(), values.end(), vector.data());
  return vector;
}

// One layer assembled from the arrays of a recording.
class PeerLayer {
 public:
  PeerLayer(std::size_t layer, std::size_t tokens)
      : layer_(layer), work_(config_, tokens), state_(config_) {
    span_ = {&state_, 0, tokens};
  }

  void matrix(TensorRole role, std::size_t rows, std::size_t cols, std::vector<float> values) {
    ASSERT_EQ(values.size(), rows * cols);
    tape_.add({layer_, role}, rows, cols, std::move(values));
  }

  LayerContext context() {
    return {config_, layer_, vectors_, tape_, experts_, work_, {&span_, 1}, span_.count};
  }

  void load_kda(const PeerData& data, const std::map<TensorRole, std::string>& names) {
    using enum TensorRole;
    for (const TensorRole role : {kKdaQ, kKdaK, kKdaV, kGate}) {
      matrix(role, 64, 128, data.array(names.at(role)));
    }
    matrix(kKdaFA, 16, 128, data.array(names.at(kKdaFA)));
    matrix(kKdaFB, 64, 16, data.array(names.at(kKdaFB)));
    matrix(kKdaB, 4, 128, data.array(names.at(kKdaB)));
    matrix(kOut, 128, 64, data.array(names.at(kOut)));
    vectors_.q_conv = taps(data.array(names.at(kKdaQConv)));
    vectors_.k_conv = taps(data.array(names.at(kKdaKConv)));
    vectors_.v_conv = taps(data.array(names.at(kKdaVConv)));
    vectors_.decay_rate = to_vector(data.array(names.at(kKdaALog)));
    for (float& rate : vectors_.decay_rate.span()) {
      rate = kernels::exp_contract(rate);
    }
    vectors_.dt_bias = to_vector(data.array(names.at(kKdaDtBias)));
    vectors_.o_norm = to_vector(data.array(names.at(kKdaONorm)));
  }

  void load_mla(const PeerData& data, const std::string& prefix) {
    using enum TensorRole;
    matrix(kMlaQA, 64, 128, data.array(prefix + "q_a_proj_weight"));
    matrix(kMlaQB, 128, 64, data.array(prefix + "q_b_proj_weight"));
    matrix(kMlaKvA, 40, 128, data.array(prefix + "kv_a_proj_with_mqa_weight"));
    matrix(kMlaKvB, 160, 32, data.array(prefix + "kv_b_proj_weight"));
    matrix(kGate, 64, 128, data.array(prefix + "g_proj_weight"));
    matrix(kOut, 128, 64, data.array(prefix + "o_proj_weight"));
    vectors_.q_a_norm = to_vector(data.array(prefix + "q_a_layernorm_weight"));
    vectors_.kv_a_norm = to_vector(data.array(prefix + "kv_a_layernorm_weight"));
  }

  void load_moe(const PeerData& data, const std::string& prefix) {
    using enum TensorRole;
    matrix(kRouter, 8, 128, data.array(prefix + "gate_weight"));
    matrix(kLatentDown, 64, 128, data.array(prefix + "down_weight"));
    matrix(kLatentUp, 128, 64, data.array(prefix + "up_weight"));
    matrix(kSharedGate, 96, 128, data.array(prefix + "shared_w1_weight"));
    matrix(kSharedUp, 96, 128, data.array(prefix + "shared_w3_weight"));
    matrix(kSharedDown, 128, 96, data.array(prefix + "shared_w2_weight"));
    vectors_.router_bias = to_vector(data.array(prefix + "e_score_correction_bias"));
    vectors_.latent_norm = to_vector(data.array(prefix + "norm_weight"));
    for (int e = 0; e < 8; ++e) {
      const std::string expert = prefix + "experts_" + std::to_string(e) + "_";
      experts_.add({data.array(expert + "w1_weight"), data.array(expert + "w2_weight"),
                    data.array(expert + "w3_weight")});
    }
  }

  void load_norms(const PeerData& data) {
    vectors_.input_norm = to_vector(data.array("input_layernorm_weight"));
    vectors_.post_norm = to_vector(data.array("post_attention_layernorm_weight"));
    vectors_.attention_res = folded(data, "self_attention_res");
    vectors_.mlp_res = folded(data, "mlp_res");
  }

  // Snapshots [token][block][E] of the recording to [block][token][E].
  void set_snapshots(const std::vector<float>& recorded, std::size_t blocks) const {
    const std::size_t tokens = span_.count;
    for (std::size_t i = 0; i < recorded.size(); ++i) {
      const std::size_t token = i / (blocks * 128);
      const std::size_t block = i / 128 % blocks;
      work_.snapshots[(block * tokens + token) * 128 + i % 128] = recorded[i];
    }
  }

  [[nodiscard]] std::vector<float> snapshots(std::size_t blocks) const {
    const std::size_t tokens = span_.count;
    std::vector<float> out(blocks * tokens * 128);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::size_t token = i / (blocks * 128);
      const std::size_t block = i / 128 % blocks;
      out[i] = work_.snapshots[(block * tokens + token) * 128 + i % 128];
    }
    return out;
  }

  Workspace& work() { return work_; }

  SequenceState& state() { return state_; }

  test::MemoryExperts& experts() { return experts_; }

  [[nodiscard]] std::size_t tiles_out() const { return tape_.tiles_out(); }

 private:
  static Vector folded(const PeerData& data, const std::string& name) {
    Vector norm = to_vector(data.array(name + "_norm_weight"));
    const std::vector<float> projection = data.array(name + "_proj_weight");
    for (std::size_t i = 0; i < norm.size(); ++i) {
      norm.data()[i] *= projection[i];
    }
    return norm;
  }

  static Vector taps(const std::vector<float>& stored) {  // [64][1][4] to [4][64]
    Vector out(stored.size());
    for (std::size_t i = 0; i < stored.size(); ++i) {
      out.data()[(i % 4) * 64 + i / 4] = stored[i];
    }
    return out;
  }

  ModelConfig config_ = peer_config();
  std::size_t layer_;
  LayerVectors vectors_;
  test::MemoryTape tape_;
  test::MemoryExperts experts_{64, 48};
  Workspace work_;
  SequenceState state_;
  TokenSpan span_;
};

std::map<TensorRole, std::string> kda_names(bool whole_layer) {
  using enum TensorRole;
  std::map<TensorRole, std::string> names = {
      {kKdaQ, "q_proj"},       {kKdaK, "k_proj"},       {kKdaV, "v_proj"},
      {kGate, "g_proj"},       {kOut, "o_proj"},        {kKdaFA, "f_a_proj"},
      {kKdaFB, "f_b_proj"},    {kKdaB, "b_proj"},       {kKdaQConv, "q_conv1d"},
      {kKdaKConv, "k_conv1d"}, {kKdaVConv, "v_conv1d"}, {kKdaALog, "A_log"},
      {kKdaDtBias, "dt_bias"}, {kKdaONorm, "o_norm"}};
  if (!whole_layer) {
    names[kKdaFA] = "f_a";
    names[kKdaFB] = "f_b";
    names[kKdaQConv] = "q_conv";
    names[kKdaKConv] = "k_conv";
    names[kKdaVConv] = "v_conv";
    return names;
  }
  for (auto& [role, name] : names) {
    const bool bare = role == kKdaALog || role == kKdaDtBias;
    name.insert(0, "self_attn_").append(bare ? "" : "_weight");
  }
  return names;
}

class PeerLayers : public testing::Test {
 protected:
  void SetUp() override {
    if (test::shared("peer/ops").empty()) {
      GTEST_SKIP() << test::missing_shared("peer/ops");
    }
  }
};

std::vector<float> copy_of(const float* data, std::size_t count) {
  return {data, data + count};
}

void run_kda(const std::string& name, double factor) {
  const PeerData data(name);
  const std::size_t tokens = data.size("T");
  PeerLayer layer(1, tokens);
  layer.load_kda(data, kda_names(/*whole_layer=*/false));
  const std::vector<float> in = data.array("in");
  std::copy(in.begin(), in.end(), layer.work().normed);
  kda_attention(layer.context());
  EXPECT_TRUE(peer_match(copy_of(layer.work().branch, tokens * 128), data.array("out"), factor));
  const AlignedBuffer<float>& state = layer.state().kda(1).state;
  EXPECT_TRUE(peer_match(copy_of(state.data(), state.size()), data.array("state_out"), factor));
}

TEST_F(PeerLayers, KdaOneToken) {
  run_kda("kda_layer1", 1.0);
}

TEST_F(PeerLayers, KdaEightTokens) {
  run_kda("kda_layer8", 3.0);  // others computed it in float32
}

TEST_F(PeerLayers, Mla) {
  const PeerData data("mla");
  PeerLayer layer(3, 6);
  layer.load_mla(data, "");
  const std::vector<float> in = data.array("in");
  std::copy(in.begin(), in.end(), layer.work().normed);
  mla_attention(layer.context());
  EXPECT_TRUE(peer_match(copy_of(layer.work().branch, 6 * 128), data.array("out")));
  std::vector<float> latents;
  std::vector<float> ropes;
  for (std::size_t position = 0; position < 6; ++position) {
    const float* cached = layer.state().latents(3).at(position);
    latents.insert(latents.end(), cached, cached + 32);
    ropes.insert(ropes.end(), cached + 32, cached + 40);
  }
  EXPECT_TRUE(peer_match(latents, data.array("kv_latent")));
  EXPECT_TRUE(peer_match(ropes, data.array("k_rope")));
}

TEST_F(PeerLayers, LatentMoe) {
  const PeerData data("moe");
  PeerLayer layer(1, 3);
  layer.load_moe(data, "");
  const std::vector<float> in = data.array("in");
  std::copy(in.begin(), in.end(), layer.work().normed);
  latent_moe(layer.context());
  const std::vector<float> out = copy_of(layer.work().branch, 3 * 128);
  EXPECT_TRUE(peer_match(out, data.array("out"), 3.0));  // others computed it in float32
  layer.experts().set_reversed(true);
  latent_moe(layer.context());
  EXPECT_TRUE(test::same_bits(copy_of(layer.work().branch, 3 * 128), out))
      << "the order of arrival changed the result";
}

void run_layer(const std::string& name, std::size_t blocks_out, double factor) {
  const PeerData data(name);
  PeerLayer layer(data.size("layer_idx"), 4);
  if (name == "layer_mla") {
    layer.load_mla(data, "self_attn_");
  } else {
    layer.load_kda(data, kda_names(/*whole_layer=*/true));
  }
  layer.load_moe(data, "mlp_");
  layer.load_norms(data);
  const std::vector<float> in = data.array("in");
  std::copy(in.begin(), in.end(), layer.work().residual);
  layer.set_snapshots(data.array("block_residual_in"), 2);
  std::size_t stack = 2;
  decoder_layer(layer.context(), stack);
  EXPECT_EQ(stack, blocks_out);
  EXPECT_TRUE(peer_match(copy_of(layer.work().residual, 4 * 128), data.array("out"), factor));
  EXPECT_TRUE(peer_match(layer.snapshots(blocks_out), data.array("block_residual_out")));
  EXPECT_EQ(layer.tiles_out(), 0U);
}

TEST_F(PeerLayers, WholeKdaLayer) {
  run_layer("layer_kda", 2, 3.0);  // others computed it in float32
}

TEST_F(PeerLayers, WholeMlaLayerOnABoundary) {
  run_layer("layer_mla", 3, 1.0);
}

}  // namespace
}  // namespace k3::model

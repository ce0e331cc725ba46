// Kernels against operations that others recorded in float32.

#include <algorithm>
#include <fstream>
#include <vector>

#include <gtest/gtest.h>

#include "base/aligned_buffer.h"
#include "kernels/activation.h"
#include "kernels/elementary.h"
#include "kernels/kda.h"
#include "kernels/norms.h"
#include "kernels/products.h"
#include "kernels/routing.h"
#include "support/paths.h"
#include "support/peer_data.h"

namespace k3::kernels {
namespace {

using test::peer_match;
using test::PeerData;

class PeerOps : public testing::Test {
 protected:
  void SetUp() override {
    if (test::shared("peer/ops").empty()) {
      GTEST_SKIP() << test::missing_shared("peer/ops");
    }
  }
};

TEST_F(PeerOps, RmsNorm) {
  const PeerData data("rmsnorm");
  const std::vector<float> x = data.array("in");
  const std::vector<float> gain = data.array("weight");
  std::vector<float> y(x.size());
  rmsnorm_rows(x.data(), gain.data(), data.number("eps"), x.size() / gain.size(), gain.size(),
               y.data());
  EXPECT_TRUE(peer_match(y, data.array("out")));
}

TEST_F(PeerOps, SituGlu) {
  const PeerData data("situ_glu");
  const std::vector<float> in = data.array("in");  // [6][gate 8, up 8]
  const SituBetas betas{static_cast<float>(data.number("beta")),
                        static_cast<float>(data.number("linear_beta"))};
  std::vector<float> out(in.size() / 2);
  for (std::size_t row = 0; row < 6; ++row) {
    const float* gate = in.data() + row * 16;
    situ_glu(gate, gate + 8, betas, 8, out.data() + row * 8);
  }
  EXPECT_TRUE(peer_match(out, data.array("out")));
}

// [C][K] or [C][1][K] as stored to [K][C].
std::vector<float> transposed(const std::vector<float>& stored, std::size_t kernel) {
  const std::size_t channels = stored.size() / kernel;
  std::vector<float> taps(stored.size());
  for (std::size_t i = 0; i < stored.size(); ++i) {
    taps[(i % kernel) * channels + i / kernel] = stored[i];
  }
  return taps;
}

TEST_F(PeerOps, ShortConvCarriesItsTail) {
  const PeerData data("shortconv");
  const std::size_t kernel = data.size("kernel");
  const std::size_t channels = data.size("channels");
  const std::vector<float> taps = transposed(data.array("weight"), kernel);
  const ShortConv conv{kernel, channels, taps.data()};
  std::vector<float> tail((kernel - 1) * channels);
  const std::vector<float> in = data.array("in");
  std::vector<float> out(in.size());
  short_conv(conv, in.size() / channels, in.data(), tail.data(), out.data());
  EXPECT_TRUE(peer_match(out, data.array("out")));
  EXPECT_TRUE(peer_match(tail, transposed(data.array("state_after"), kernel - 1)));
  const std::vector<float> next = data.array("in_next");
  std::vector<float> out_next(next.size());
  short_conv(conv, 1, next.data(), tail.data(), out_next.data());
  EXPECT_TRUE(peer_match(out_next, data.array("out_next")));
}

TEST_F(PeerOps, KdaDecay) {
  const PeerData data("kda_decay");
  std::vector<float> z = data.array("z");  // [4 tokens][4 heads][16]
  std::vector<float> rate = data.array("A_log");
  std::ranges::transform(rate, rate.begin(), exp_contract);
  const std::vector<float> bias = data.array("dt_bias");
  const DecayGate gate{4, 16, rate.data(), bias.data(),
                       static_cast<float>(data.number("lower_bound"))};
  for (std::size_t token = 0; token < 4; ++token) {
    kda_decay(gate, z.data() + token * 64);
  }
  EXPECT_TRUE(peer_match(z, data.array("alpha")));
}

void run_kda_recurrence(const std::string& name) {
  const PeerData data(name);
  const std::size_t tokens = data.size("T");
  const std::size_t heads = data.size("H");
  const std::size_t width = data.size("d_k");
  std::vector<float> q = data.array("q");
  const auto scale = static_cast<float>(data.number("q_scale"));
  std::ranges::transform(q, q.begin(), [scale](float value) { return value * scale; });
  const std::vector<float> k = data.array("k");
  const std::vector<float> v = data.array("v");
  const std::vector<float> alpha = data.array("alpha");
  const std::vector<float> beta = data.array("beta");
  std::vector<float> state(heads * width * width);
  std::vector<float> out(q.size());
  for (std::size_t t = 0; t < tokens; ++t) {
    for (std::size_t h = 0; h < heads; ++h) {
      const std::size_t at = (t * heads + h) * width;
      const KdaStep step{q.data() + at, k.data() + at, v.data() + at, alpha.data() + at,
                         beta[t * heads + h]};
      kda_step(step, width, state.data() + h * width * width, out.data() + at);
    }
  }
  EXPECT_TRUE(peer_match(out, data.array("out")));
  EXPECT_TRUE(peer_match(state, data.array("state_out")));
}

TEST_F(PeerOps, KdaStepOneToken) {
  run_kda_recurrence("kda_recur1");
}

TEST_F(PeerOps, KdaStepEightTokens) {
  run_kda_recurrence("kda_recur8");
}

TEST_F(PeerOps, Router) {
  const PeerData data("router");
  const std::size_t experts = data.size("n_experts");
  const std::size_t top_k = data.size("top_k");
  const std::vector<float> gate = data.array("gate_weight");
  const std::vector<float> bias = data.array("bias");
  const std::vector<float> x = data.array("in");
  const std::size_t width = gate.size() / experts;
  const std::size_t tokens = x.size() / width;
  std::vector<float> scores(tokens * experts);
  AlignedBuffer<float> scratch(product_scratch_floats(width, tokens));
  multiply(F32Matrix{gate.data(), experts, width, width}, Batch{x.data(), tokens, width},
           scratch.data(), {scores.data(), experts});
  const Router router{experts, top_k, bias.data(), true, 1.0};
  const std::vector<float> expected_choice = data.array("topk_idx");
  std::vector<float> weights(tokens * top_k);
  std::vector<std::uint32_t> chosen(top_k);
  for (std::size_t t = 0; t < tokens; ++t) {
    ASSERT_TRUE(
        route(router, scores.data() + t * experts, chosen.data(), weights.data() + t * top_k));
    for (std::size_t j = 0; j < top_k; ++j) {
      EXPECT_EQ(static_cast<float>(chosen[j]), expected_choice[t * top_k + j]);
    }
  }
  EXPECT_TRUE(peer_match(weights, data.array("topk_weight")));
}

TEST_F(PeerOps, ResidualAggregation) {
  const PeerData data("attnres");
  const std::vector<float> residual = data.array("prefix_sum");       // [4][128]
  const std::vector<float> snapshots = data.array("block_residual");  // [4][8][128]
  std::vector<std::vector<float>> sources(8, std::vector<float>(4 * 128));
  for (std::size_t i = 0; i < snapshots.size(); ++i) {
    const std::size_t token = i / (8 * 128);
    const std::size_t source = i / 128 % 8;
    sources[source][token * 128 + i % 128] = snapshots[i];
  }
  std::vector<const float*> pointers;
  pointers.reserve(sources.size() + 1);
  for (const std::vector<float>& source : sources) {
    pointers.push_back(source.data());
  }
  pointers.push_back(residual.data());
  const std::vector<float> weight = data.array("fold_hint");
  std::vector<float> scores(4 * pointers.size());
  std::vector<float> out(residual.size());
  aggregate({pointers, weight.data(), data.number("eps"), 128}, 4, scores.data(), out.data());
  EXPECT_TRUE(peer_match(out, data.array("out")));
}

// Real bytes of the release: every value exact.
TEST_F(PeerOps, Mxfp4BytesOfTheRelease) {
  std::ifstream file(test::shared("peer") / "mxfp4.json");
  const auto json = nlohmann::json::parse(file);
  const auto packed = json.at("packed").at("data").get<std::vector<std::uint8_t>>();
  const auto scales = json.at("scales").at("data").get<std::vector<std::uint8_t>>();
  const auto expected = json.at("expected").at("data").get<std::vector<float>>();
  const auto rows = json.at("rows").get<std::size_t>();
  const auto cols = json.at("logical_width").get<std::size_t>();
  ASSERT_EQ(expected.size(), rows * cols);
  const Mxfp4Matrix matrix{packed.data(), scales.data(), rows, cols, cols / 2, cols / 32};
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    wrong += mxfp4_value(matrix, i / cols, i % cols) == expected[i] ? 0U : 1U;
  }
  EXPECT_EQ(wrong, 0U);
  const auto swapped = json.at("expected_swapped_nibbles").at("first64").get<std::vector<float>>();
  std::size_t differing = 0;
  for (std::size_t i = 0; i < swapped.size(); ++i) {
    differing += mxfp4_value(matrix, 0, i) == swapped[i] ? 0U : 1U;
  }
  EXPECT_GT(differing, 30U);
}

}  // namespace
}  // namespace k3::kernels

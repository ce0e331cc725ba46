// One state that the layers share gives the bits of a state for each, in the one pass that it allows.
#include "model/sequence_state.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "k3/engine.h"

#include "support/model_answers.h"
#include "support/numbers.h"
#include "support/paths.h"
#include "support/tiny_checkpoint.h"

namespace k3 {
namespace {

using model::KdaState;
using model::SequenceState;
using model::StateKind;

TEST(SequenceStates, OneStateIsClearForEveryLayer) {
  ModelConfig config = test::tiny_config();
  SequenceState state(config, StateKind::kOneLayer);
  state.begin_pass();
  for (std::size_t layer = 0; layer < 2; ++layer) {
    KdaState& kda = state.kda(layer);
    for (AlignedBuffer<float>* part : {&kda.state, &kda.q_tail, &kda.k_tail, &kda.v_tail}) {
      EXPECT_TRUE(std::ranges::all_of(part->span(), [](float value) { return value == 0.0F; }));
      std::ranges::fill(part->span(), 1.0F);
    }
    EXPECT_EQ(&state.kda(layer), &kda);
    EXPECT_EQ(kda.state.span().front(), 1.0F) << "a second call of the same layer clears nothing";
  }
}

TEST(SequenceStates, OneStateRunsOnce) {
  const ModelConfig config = test::tiny_config();
  SequenceState once(config, StateKind::kOneLayer);
  once.begin_pass();
  once.end_pass(3);
  EXPECT_EQ(once.position(), 3U);
  EXPECT_THROW(once.begin_pass(), std::logic_error);
  SequenceState often(config, StateKind::kAllLayers);
  for (int pass = 0; pass < 2; ++pass) {
    often.begin_pass();
    often.end_pass(3);
  }
  EXPECT_EQ(often.position(), 6U);
  often.begin_pass();  // and never ended: a pass that threw
  EXPECT_THROW(often.begin_pass(), std::logic_error);
}

TEST(SequenceStates, BytesAreThoseOfTheLayersKept) {
  ModelConfig config = test::tiny_config();  // KDA, KDA, MLA
  const auto fixed = [&](StateKind kind) { return SequenceState::fixed_bytes(config, kind); };
  const auto latents = [&](StateKind kind, std::size_t positions) {
    return SequenceState::latent_bytes(config, kind, positions);
  };
  // [H][D][D] and three tails [K-1][H*D]
  EXPECT_EQ(fixed(StateKind::kOneLayer), (2 * 8 * 8 + 3 * 3 * 16) * sizeof(float));
  EXPECT_EQ(fixed(StateKind::kAllLayers), 2 * fixed(StateKind::kOneLayer));
  EXPECT_EQ(latents(StateKind::kOneLayer, 0), 0U);
  EXPECT_GE(latents(StateKind::kOneLayer, 1000), 1000 * config.latent_width() * sizeof(float));
  EXPECT_EQ(latents(StateKind::kAllLayers, 1000), latents(StateKind::kOneLayer, 1000));
  config.is_mla = {true, true, true};
  EXPECT_EQ(latents(StateKind::kAllLayers, 1000), 3 * latents(StateKind::kOneLayer, 1000));
  config.is_mla = {false, false, false};
  EXPECT_EQ(latents(StateKind::kAllLayers, 1000), 0U);
  EXPECT_EQ(latents(StateKind::kOneLayer, 1000), 0U);
}

class OneState : public testing::TestWithParam<const char*> {};

TEST_P(OneState, GivesTheBitsOfAStateForEachLayerOnce) {
  const EngineOptions all{.model_dir = test::fixture(std::string("models/") + GetParam())};
  EngineOptions one = all;
  one.memory.ultra_low_memory = true;
  one.memory.full_recompute = true;
  Engine usual(all);
  Engine shared(one);
  ASSERT_TRUE(shared.memory_plan().one_state);
  for (const test::PromptAnswer& answer : test::fixture_answers(GetParam())) {
    const std::vector<std::int32_t> ids = answer.full_ids();
    EXPECT_TRUE(test::same_bits(test::all_logits(shared, ids, 0), test::all_logits(usual, ids, 0)))
        << answer.name;
    EXPECT_THROW(std::ignore = test::all_logits(shared, ids, 1), std::logic_error);
  }
}

INSTANTIATE_TEST_SUITE_P(All,
                         OneState,
                         testing::Values("demo", "deep", "odd", "nodense", "edge"),
                         [](const auto& model) { return std::string(model.param); });

}  // namespace
}  // namespace k3

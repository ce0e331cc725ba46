// The engine on the project's own small checkpoints, against the float64 reference. What each model
// is made to catch stands in tests/fixtures/README.md.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "k3/engine.h"
#include "k3/generate.h"

#include "support/model_answers.h"
#include "support/numbers.h"
#include "support/paths.h"
#include "support/safetensors_file.h"

namespace k3 {
namespace {

using test::PromptAnswer;
using test::same_bits;

class FixtureModel : public testing::TestWithParam<const char*> {
 protected:
  [[nodiscard]] EngineOptions options(int threads = 0) const {
    return {.model_dir = test::fixture(std::string("models/") + GetParam()),
            .memory = {.sessions = 2},
            .threads = threads};
  }

  [[nodiscard]] static std::vector<PromptAnswer> answers() {
    return test::fixture_answers(GetParam());
  }

  [[nodiscard]] static test::SafetensorsFile expected() {
    return test::SafetensorsFile(
        test::fixture(std::string("models/") + GetParam() + ".expected.safetensors"));
  }

  // The prompt whose mutants and residuals the fixture holds.
  [[nodiscard]] static PromptAnswer short_prompt() {
    std::vector<PromptAnswer> all = answers();
    return *std::ranges::find_if(
        all, [](const PromptAnswer& a) { return expected().contains(a.name + ".residuals"); });
  }
};

// At least 20 greedy tokens, in both modes.
TEST_P(FixtureModel, GreedyTokensIncrementalAndFullRecompute) {
  Engine engine(options());
  for (const PromptAnswer& answer : answers()) {
    ASSERT_GE(answer.generated.size(), 20U);
    const GenerateResult incremental =
        generate(engine, answer.ids, {.max_new_tokens = answer.generated.size()});
    EXPECT_EQ(incremental.generated, answer.generated) << answer.name;
    const GenerateResult full = generate(
        engine, answer.ids, {.max_new_tokens = answer.generated.size(), .full_recompute = true});
    EXPECT_EQ(full.generated, answer.generated) << answer.name;
    EXPECT_TRUE(same_bits(full.prompt_logits, incremental.prompt_logits));
  }
}

TEST_P(FixtureModel, LogitsOfEveryPosition) {
  Engine engine(options());
  for (const PromptAnswer& answer : answers()) {
    EXPECT_TRUE(test::logits_pass(test::all_logits(engine, answer.full_ids(), 0), answer));
  }
}

TEST_P(FixtureModel, TeacherForcingPredictions) {
  Engine engine(options());
  for (const PromptAnswer& answer : answers()) {
    const TeacherForcing result = teacher_forcing(engine, answer.full_ids(), 9);
    EXPECT_EQ(result.predictions, answer.predictions) << answer.name;
  }
}

// One token at a time is the incremental run; all at once is the full recompute.
TEST_P(FixtureModel, AnySplitOfThePromptGivesTheSameBits) {
  Engine engine(options());
  for (const PromptAnswer& answer : answers()) {
    const std::vector<float> whole = test::all_logits(engine, answer.full_ids(), 0);
    for (const std::size_t chunk : {1U, 2U, 3U, 7U, 19U}) {
      EXPECT_TRUE(same_bits(test::all_logits(engine, answer.full_ids(), chunk), whole))
          << answer.name << " in chunks of " << chunk;
    }
  }
}

TEST_P(FixtureModel, ThreadsDoNotChangeBits) {
  const PromptAnswer answer = answers().front();
  std::vector<float> expected;
  for (const int threads : {1, 2, 3, 7}) {
    const test::ScopedThreads scope(threads);
    Engine engine(options(threads));
    const std::vector<float> logits = test::all_logits(engine, answer.full_ids(), 0);
    expected = expected.empty() ? logits : expected;
    EXPECT_TRUE(same_bits(logits, expected)) << threads << " threads";
  }
}

// Sequences of different lengths and positions in one call, each as if alone.
TEST_P(FixtureModel, SequencesInOneBatchEqualEachAlone) {
  Engine engine(options());
  const std::size_t vocab = engine.config().vocab_size;
  const std::vector<std::int32_t> a = answers().back().full_ids();
  const std::vector<std::int32_t> b = answers().front().full_ids();
  const std::vector<float> alone_a = test::all_logits(engine, a, 0);
  const std::vector<float> alone_b = test::all_logits(engine, b, 0);
  Session session_a = engine.new_session();
  Session session_b = engine.new_session();
  // a runs ahead by 3 tokens; then 4 of a beside 5 of b, the logits of every other one wanted.
  const SessionStep ahead{&session_a, std::span(a).first(3)};
  engine.forward({&ahead, 1}, {});
  const std::vector<std::size_t> rows_a = {1, 3};
  const std::vector<std::size_t> rows_b = {0, 2, 4};
  const std::vector<SessionStep> steps = {{&session_a, std::span(a).subspan(3, 4), rows_a},
                                          {&session_b, std::span(b).first(5), rows_b}};
  std::vector<float> logits(5 * vocab);
  engine.forward(steps, logits);
  const auto row = [vocab](const std::vector<float>& all, std::size_t position) {
    return std::span(all).subspan(position * vocab, vocab);
  };
  EXPECT_TRUE(same_bits(row(logits, 0), row(alone_a, 4)));
  EXPECT_TRUE(same_bits(row(logits, 1), row(alone_a, 6)));
  EXPECT_TRUE(same_bits(row(logits, 2), row(alone_b, 0)));
  EXPECT_TRUE(same_bits(row(logits, 3), row(alone_b, 2)));
  EXPECT_TRUE(same_bits(row(logits, 4), row(alone_b, 4)));
}

TEST_P(FixtureModel, ResidualAfterEveryLayer) {
  Engine engine(options());
  const PromptAnswer answer = short_prompt();
  const std::vector<float> reference = expected().floats(answer.name + ".residuals");
  const std::size_t count = answer.ids.size() * engine.config().hidden_size;
  Session session = engine.new_session();
  const SessionStep step{&session, answer.ids};
  std::size_t seen = 0;
  const ResidualObserver observer = [&](std::size_t layers_done, std::span<const float> residual) {
    const std::span truth = std::span(reference).subspan(layers_done * count, count);
    EXPECT_TRUE(test::within(residual, truth, 2e-5 * test::largest_magnitude(truth)))
        << "after " << layers_done << " layers";
    ++seen;
  };
  engine.forward({&step, 1}, {}, {.observer = &observer});
  EXPECT_EQ(seen, engine.config().num_hidden_layers + 1);
}

TEST_P(FixtureModel, FirstLayersAlone) {
  const auto json = nlohmann::json::parse(
      std::ifstream(test::fixture(std::string("models/") + GetParam() + ".expected.json")));
  ASSERT_FALSE(json.at("layers_partial").empty());
  for (const auto& [layers, answer] : json.at("layers_partial").items()) {
    EngineOptions truncated = options();
    truncated.layers = std::stoul(layers);
    Engine engine(truncated);
    const auto ids = answer.at("ids").get<std::vector<std::int32_t>>();
    const GenerateResult result =
        generate(engine, ids, {.max_new_tokens = answer.at("gen").get<std::size_t>()});
    EXPECT_EQ(result.generated, answer.at("generated_ids").get<std::vector<std::int32_t>>());
    EXPECT_TRUE(test::position_passes(result.prompt_logits,
                                      expected().floats("layers" + layers + ".logits")))
        << layers << " layers";
  }
}

// The test of the tests: what a wrong implementation would compute must not pass the gate.
TEST_P(FixtureModel, TheGateRefusesEveryMutant) {
  const PromptAnswer answer = short_prompt();
  const test::SafetensorsFile file = expected();
  std::size_t mutants = 0;
  for (const std::string& name : file.names()) {
    if (name.starts_with("mutant.")) {
      EXPECT_FALSE(test::logits_pass(file.floats(name), answer)) << name << " passes the gate";
      ++mutants;
    }
  }
  EXPECT_GT(mutants, 0U);
  EXPECT_TRUE(test::logits_pass(answer.logits, answer));
}

INSTANTIATE_TEST_SUITE_P(All,
                         FixtureModel,
                         testing::Values("demo", "deep", "odd", "nodense", "edge"),
                         [](const testing::TestParamInfo<const char*>& model) {
                           return std::string(model.param);
                         });

// Every wrong implementation that the issue of this project names is caught by some model.
TEST(FixtureModels, EveryNamedMutantIsThere) {
  std::vector<std::string> missing;
  for (const char* mutation :
       {"per_channel_a_log", "padded_a_log_garbage", "scale_by_nope", "rotated_rope",
        "dropped_rope", "norm_each_expert", "biased_combining_weights", "capped_gate_in_sigmoid",
        "residual_kept_at_boundary", "aggregate_keys", "swapped_nibbles", "scale_255_as_value",
        "conv_taps_reversed", "l2norm_by_mean", "q_not_scaled"}) {
    const bool found = std::ranges::any_of(
        std::vector<std::string>{"demo", "deep", "odd", "nodense", "edge"},
        [&](const std::string& model) {
          return test::SafetensorsFile(test::fixture("models/" + model + ".expected.safetensors"))
              .contains(std::string("mutant.") + mutation + ".logits");
        });
    if (!found) {
      missing.emplace_back(mutation);
    }
  }
  EXPECT_TRUE(missing.empty()) << testing::PrintToString(missing);
}

}  // namespace
}  // namespace k3

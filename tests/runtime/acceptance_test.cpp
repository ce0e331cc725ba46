// The engine on a whole checkpoint made by others, against their float64 answers.

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

namespace k3 {
namespace {

using test::PromptAnswer;

class Acceptance : public testing::Test {
 protected:
  void SetUp() override {
    root_ = test::shared("acceptance/released-like");
    if (root_.empty()) {
      GTEST_SKIP() << test::missing_shared("acceptance/released-like");
    }
  }

  [[nodiscard]] EngineOptions options() const {
    return {.model_dir = root_ / "model", .memory = {.sessions = 2}};
  }

  std::filesystem::path root_;
};

TEST_F(Acceptance, GreedyTokensIncrementalAndFullRecompute) {
  Engine engine(options());
  for (const PromptAnswer& answer : test::acceptance_answers()) {
    for (const bool full : {false, true}) {
      const GenerateResult result = generate(
          engine, answer.ids, {.max_new_tokens = answer.generated.size(), .full_recompute = full});
      EXPECT_EQ(result.generated, answer.generated) << answer.name << (full ? " full" : "");
    }
  }
}

TEST_F(Acceptance, LogitsOfEveryPosition) {
  Engine engine(options());
  for (const PromptAnswer& answer : test::acceptance_answers()) {
    EXPECT_TRUE(test::logits_pass(test::all_logits(engine, answer.full_ids(), 0), answer));
  }
}

TEST_F(Acceptance, AnySplitOfThePromptGivesTheSameBits) {
  Engine engine(options());
  for (const PromptAnswer& answer : test::acceptance_answers()) {
    const std::vector<float> whole = test::all_logits(engine, answer.full_ids(), 0);
    for (const std::size_t chunk : {1U, 2U, 7U, 64U}) {
      EXPECT_TRUE(test::same_bits(test::all_logits(engine, answer.full_ids(), chunk), whole))
          << answer.name << " in chunks of " << chunk;
    }
  }
}

TEST_F(Acceptance, TeacherForcingPredictions) {
  Engine engine(options());
  for (const PromptAnswer& answer : test::acceptance_answers()) {
    EXPECT_EQ(teacher_forcing(engine, answer.full_ids()).predictions, answer.predictions)
        << answer.name;
  }
}

TEST_F(Acceptance, FirstLayersAlone) {
  const auto json = nlohmann::json::parse(std::ifstream(root_ / "expected.json"));
  const auto& partial = json.at("layers_partial");
  const auto ids = partial.at("ids").get<std::vector<std::int32_t>>();
  for (const auto& [layers, expected] : partial.at("cases").items()) {
    EngineOptions truncated = options();
    truncated.layers = std::stoul(layers);
    Engine engine(truncated);
    const GenerateResult result =
        generate(engine, ids, {.max_new_tokens = partial.at("gen").get<std::size_t>()});
    EXPECT_EQ(result.generated, expected.at("generated_ids").get<std::vector<std::int32_t>>())
        << layers << " layers";
    EXPECT_TRUE(test::position_passes(
        result.prompt_logits,
        test::read_floats(root_ / expected.at("logits_file").get<std::string>())))
        << layers << " layers";
  }
}

// A second turn on a kept session equals a cold run over all ids, and others' answer.
TEST_F(Acceptance, SecondTurnOnAKeptSession) {
  const auto json = nlohmann::json::parse(std::ifstream(root_ / "expected.json"));
  const auto full = json.at("resume").at("turn2_full_ids").get<std::vector<std::int32_t>>();
  const auto second = json.at("resume").at("turn2");
  const std::size_t prompt = full.size() - second.at("gen").get<std::size_t>();
  const std::size_t first = prompt - second.at("ids").size();
  Engine engine(options());
  Session session = engine.new_session();
  const std::vector<std::size_t> last = {prompt - first - 1};
  std::vector<float> logits(engine.config().vocab_size);
  const SessionStep turn1{&session, std::span(full).first(first)};
  engine.forward({&turn1, 1}, {});
  const SessionStep turn2{&session, std::span(full).subspan(first, prompt - first), last};
  engine.forward({&turn2, 1}, logits);
  EXPECT_TRUE(
      test::position_passes(logits, test::read_floats(root_ / "logits_resume_turn2.f32.bin")));
  const std::vector<std::int32_t> cold(full.begin(),
                                       full.begin() + static_cast<std::ptrdiff_t>(prompt));
  const GenerateResult result = generate(engine, cold, {.max_new_tokens = full.size() - prompt});
  EXPECT_TRUE(test::same_bits(result.prompt_logits, logits));
  EXPECT_EQ(result.generated, second.at("generated_ids").get<std::vector<std::int32_t>>());
}

}  // namespace
}  // namespace k3

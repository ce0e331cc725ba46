// Budgets change speed, never bits: the fixture models at budgets from the floor to all in memory.

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "k3/engine.h"
#include "k3/generate.h"

#include "support/model_answers.h"
#include "support/numbers.h"
#include "support/paths.h"

namespace k3 {
namespace {

using test::PromptAnswer;
using test::same_bits;

class Streaming : public testing::TestWithParam<const char*> {
 protected:
  [[nodiscard]] static EngineOptions options(const MemoryOptions& memory = {}) {
    return {.model_dir = test::fixture(std::string("models/") + GetParam()), .memory = memory};
  }

  [[nodiscard]] static std::vector<std::int32_t> ids() {
    return test::fixture_answers(GetParam()).front().full_ids();
  }

  // Memory of all tiles, and of the slots that a token needs.
  [[nodiscard]] static MemoryPlan resident_plan() { return Engine(options()).memory_plan(); }

  [[nodiscard]] static std::uint64_t least_cache(const Engine& engine) {
    return engine.memory_plan().slot_bytes * engine.config().num_experts_per_token;
  }
};

TEST_P(Streaming, EveryBudgetGivesTheSameBits) {
  Engine resident(options());
  const std::vector<float> expected = test::all_logits(resident, ids(), 0);
  const std::uint64_t whole = resident.memory_plan().pinned_memory;
  const std::uint64_t cache = least_cache(resident);
  for (const std::uint64_t parts : {3U, 4U, 6U, 9U}) {
    const std::uint64_t trunk = whole * parts / 10;
    Engine engine(options({.trunk_bytes = trunk, .cache_bytes = cache}));
    ASSERT_GT(engine.memory_plan().ring_bytes, 0U);
    for (const std::size_t chunk : {1U, 3U, 0U}) {
      EXPECT_TRUE(same_bits(test::all_logits(engine, ids(), chunk), expected))
          << "trunk budget " << trunk << " of " << whole << ", chunk " << chunk;
    }
  }
}

// The exact floor works; one byte less is refused with the bytes that are needed.
TEST_P(Streaming, TheSmallestTrunkBudgetWorksAndOneByteLessIsRefused) {
  Engine resident(options());
  const std::vector<float> expected = test::all_logits(resident, ids(), 0);
  std::uint64_t least = 0;
  try {
    const Engine refused(options({.trunk_bytes = 1}));
    FAIL() << "a ring of one byte";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kMemory);
    const std::string text = error.what();
    const std::size_t at = text.find('(', text.find("at least"));
    ASSERT_NE(at, std::string::npos) << text;
    least = std::stoull(text.substr(at + 1));
  }
  Engine floor(options({.trunk_bytes = least, .cache_bytes = least_cache(resident)}));
  EXPECT_TRUE(same_bits(test::all_logits(floor, ids(), 2), expected));
  EXPECT_THROW(Engine(options({.trunk_bytes = least - 1})), Error);
}

TEST_P(Streaming, CachesAroundTheNumberOfExpertsOfAToken) {
  Engine resident(options());
  const std::vector<float> expected = test::all_logits(resident, ids(), 0);
  const std::uint64_t slot = resident.memory_plan().slot_bytes;
  const std::size_t needed = resident.config().num_experts_per_token;
  for (const std::size_t slots : {std::size_t{0}, std::size_t{1}, needed - 1}) {
    if (slots >= needed) {
      continue;
    }
    try {
      const Engine refused(options({.cache_bytes = slots * slot}));
      ADD_FAILURE() << slots << " slots";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kMemory);
      EXPECT_NE(std::string(error.what()).find("at least " + std::to_string(needed) + " slots"),
                std::string::npos)
          << error.what();
    }
  }
  for (const std::size_t slots : {needed, needed + 1}) {
    Engine engine(options({.cache_bytes = slots * slot}));
    EXPECT_EQ(engine.memory_plan().expert_slots, slots);
    for (const std::size_t chunk : {1U, 0U}) {
      EXPECT_TRUE(same_bits(test::all_logits(engine, ids(), chunk), expected)) << slots << " slots";
    }
  }
}

// Read-ahead that nobody uses would show here: the last pass announces that none follows.
TEST_P(Streaming, PayloadIsExactlyWhatThePassesUse) {
  const MemoryPlan resident = resident_plan();
  const MemoryOptions memory{.trunk_bytes = resident.pinned_memory / 2};
  Engine engine(options(memory));
  const PromptAnswer answer = test::fixture_answers(GetParam()).front();
  const std::size_t steps = 5;
  const GenerateResult result = generate(engine, answer.ids, {.max_new_tokens = steps});
  const RunStatistics run = engine.statistics();
  const MemoryPlan& plan = engine.memory_plan();
  EXPECT_EQ(run.tape_bytes, steps * (plan.trunk_bytes - plan.pinned_bytes));
  // Every slot of the plan holds an expert: nothing had to go, and each was read once.
  EXPECT_EQ(run.expert_evictions, 0U);
  EXPECT_EQ(run.expert_bytes % (run.expert_requests - run.expert_hits), 0U);
  EXPECT_GE(run.tape_window_bytes, run.tape_bytes);
  EXPECT_EQ(result.generated.size(), steps);
}

INSTANTIATE_TEST_SUITE_P(All,
                         Streaming,
                         testing::Values("demo", "deep", "odd", "nodense", "edge"),
                         [](const auto& model) { return std::string(model.param); });

}  // namespace
}  // namespace k3

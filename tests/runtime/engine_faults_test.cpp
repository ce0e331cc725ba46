// Whatever the reads of a run do, while it opens, reads the prompt or decodes: the tokens of a good
// disk, or an error that says what could not be read. Never another token.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "k3/engine.h"
#include "k3/errors.h"
#include "k3/generate.h"

#include "support/faulty_file_system.h"
#include "support/model_answers.h"
#include "support/numbers.h"
#include "support/paths.h"
#include "support/streamed_checkpoint.h"

namespace k3 {
namespace {

using test::FaultyFileSystem;

constexpr const char* kModel = "deep";

enum class Phase : std::uint8_t {
  kStart,
  kPrompt,
  kDecode,
  kEnd
};

struct Outcome {
  Phase phase = Phase::kStart;  // that was reached
  std::vector<std::int32_t> tokens;
  std::optional<ErrorKind> kind;
  std::string message;
};

class EngineFaults : public testing::Test {
 protected:
  static constexpr std::size_t kTokens = 4;

  // A third of the trunk stays in memory, and few more experts than a token needs: a slot is larger
  // where direct reads want larger blocks.
  [[nodiscard]] static EngineOptions options(FaultyFileSystem& file_system) {
    static const MemoryOptions kMemory = [] {
      const Engine resident(EngineOptions{.model_dir = model()});
      const MemoryPlan& plan = resident.memory_plan();
      return MemoryOptions{
          .trunk_bytes = plan.pinned_memory * 3 / 10,
          .cache_bytes = 4 * plan.slot_bytes * resident.config().num_experts_per_token};
    }();
    return {.model_dir = model(),
            .memory = kMemory,
            .readers = 2,
            .threads = 2,
            .file_system = &file_system};
  }

  [[nodiscard]] static std::filesystem::path model() {
    return test::fixture(std::string("models/") + kModel);
  }

  [[nodiscard]] static std::vector<std::int32_t> prompt() {
    return test::fixture_answers(kModel).front().ids;
  }

  [[nodiscard]] static Outcome run(FaultyFileSystem& file_system) {
    Outcome outcome;
    try {
      Engine engine(options(file_system));
      outcome.phase = Phase::kPrompt;
      const auto on_step = [&](const GenerateStep& step) {
        outcome.phase = Phase::kDecode;
        outcome.tokens.push_back(step.token);
      };
      const GenerateResult result =
          generate(engine, prompt(), {.max_new_tokens = kTokens, .chunk = 2, .on_step = on_step});
      outcome.phase = Phase::kEnd;
    } catch (const Error& error) {
      outcome.kind = error.kind();
      outcome.message = error.what();
    }
    return outcome;
  }
};

bool begins_with(const std::vector<std::int32_t>& all, const std::vector<std::int32_t>& first) {
  return first.size() <= all.size() && std::equal(first.begin(), first.end(), all.begin());
}

TEST_F(EngineFaults, EveryReadThatFailsEndsInAnErrorOrInTheRightTokens) {
  FaultyFileSystem clean({});
  const Outcome good = run(clean);
  ASSERT_EQ(good.phase, Phase::kEnd) << good.message;
  ASSERT_EQ(good.tokens.size(), kTokens);
  ASSERT_GT(clean.reads(), 200);
  std::set<Phase> phases;
  std::set<ErrorKind> kinds;
  const int step = 1 + clean.reads() / 300;
  for (int n = 1; n <= clean.reads(); n += step) {
    FaultyFileSystem file_system({.eio_on_read = n});
    const Outcome outcome = run(file_system);
    const std::string where = "read " + std::to_string(n) + ": " + outcome.message;
    EXPECT_TRUE(begins_with(good.tokens, outcome.tokens)) << where;
    phases.insert(outcome.phase);
    if (!outcome.kind) {
      EXPECT_EQ(outcome.phase, Phase::kEnd);
      EXPECT_EQ(outcome.tokens, good.tokens) << where;
      continue;
    }
    kinds.insert(*outcome.kind);
    const bool expert = outcome.message.find("routed expert") != std::string::npos;
    EXPECT_EQ(exit_status(*outcome.kind), expert ? 4 : 1) << where;
    EXPECT_NE(outcome.message.find("model-0000"), std::string::npos) << where;
    EXPECT_NE(outcome.message.find("Input/output error"), std::string::npos) << where;
  }
  EXPECT_TRUE(phases.contains(Phase::kStart));
  EXPECT_TRUE(phases.contains(Phase::kPrompt));
  EXPECT_TRUE(phases.contains(Phase::kDecode));
  EXPECT_TRUE(kinds.contains(ErrorKind::kIo));
  EXPECT_TRUE(kinds.contains(ErrorKind::kExpertIo));
}

// A shard that ends early though its size said otherwise: no bytes are made up for what is missing.
TEST_F(EngineFaults, AShardThatShrinksEndsInAnErrorOrInTheRightTokens) {
  FaultyFileSystem clean({});
  const Outcome good = run(clean);
  for (const char* shard : {"model-00001", "model-00002", "model-00003", "model-00004"}) {
    const std::uint64_t size =
        std::filesystem::file_size(model() / (std::string(shard) + "-of-000005.safetensors"));
    for (std::uint64_t part = 1; part < 8; ++part) {
      FaultyFileSystem file_system({});
      file_system.add(shard, {.file_ends_at = size * part / 8});
      const Outcome outcome = run(file_system);
      EXPECT_TRUE(outcome.kind.has_value()) << shard << ", " << part << " of 8 parts";
      EXPECT_TRUE(begins_with(good.tokens, outcome.tokens)) << shard << ", " << part;
    }
  }
}

TEST_F(EngineFaults, EveryWayToReadGivesTheSameTokens) {
  FaultyFileSystem clean({});
  const Outcome good = run(clean);
  for (const test::ReadingFaults& way : test::reading_faults()) {
    FaultyFileSystem file_system(way.faults);
    const Outcome outcome = run(file_system);
    EXPECT_EQ(outcome.tokens, good.tokens) << way.name << ": " << outcome.message;
    EXPECT_FALSE(outcome.kind.has_value()) << way.name << ": " << outcome.message;
  }
  FaultyFileSystem two_devices({.device = 1});
  two_devices.add("model-00002", {.read_delay = std::chrono::microseconds(200), .device = 2});
  const Outcome outcome = run(two_devices);
  EXPECT_EQ(outcome.tokens, good.tokens) << outcome.message;
}

// Of a shard without the embedding, whose rows the calling thread reads itself.
TEST_F(EngineFaults, AnInterruptEndsARunWhoseReadsHang) {
  FaultyFileSystem file_system({});
  EngineOptions hanging = options(file_system);
  std::atomic<bool> stop = false;
  hanging.stop = &stop;
  Engine engine(hanging);
  file_system.hold("model-00003");
  std::thread user([&] {
    file_system.wait_held(1);
    stop = true;
  });
  const GenerateResult result =
      generate(engine, prompt(), {.max_new_tokens = kTokens, .stop = &stop});
  user.join();
  EXPECT_TRUE(result.interrupted());
  EXPECT_TRUE(result.generated.empty());
  file_system.release();
}

}  // namespace
}  // namespace k3

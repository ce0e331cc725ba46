// The decode loop: stops and their reasons, drawn tokens, sessions that go on, progress.

#include "k3/generate.h"

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "support/model_answers.h"
#include "support/numbers.h"
#include "support/paths.h"

namespace k3 {
namespace {

using Ids = std::vector<std::int32_t>;

class Generate : public testing::Test {
 protected:
  Ids ids_ = {3, 4, 5, 6, 7};
  // Two sessions: some tests compare one that goes on with one that begins.
  Engine engine_{
      {.model_dir = test::fixture("models/demo"), .memory = {.sessions = 2}, .threads = 1}};
};

TEST_F(Generate, StopsBehindAStopIdAtEveryPosition) {
  const Ids greedy = generate(engine_, ids_, {.max_new_tokens = 6}).generated;
  for (std::size_t last = 0; last < greedy.size(); ++last) {
    const GenerateResult result =
        generate(engine_, ids_, {.max_new_tokens = 6, .stop_ids = {511, greedy[last]}});
    EXPECT_EQ(result.reason, StopReason::kStopId);
    EXPECT_EQ(result.generated,
              Ids(greedy.begin(), greedy.begin() + static_cast<std::ptrdiff_t>(last) + 1));
  }
  EXPECT_EQ(generate(engine_, ids_, {.max_new_tokens = 6}).reason, StopReason::kCap);
}

TEST_F(Generate, StopsWhenItsCallerSaysSo) {
  std::size_t seen = 0;
  const GenerateResult result = generate(
      engine_, ids_, {.max_new_tokens = 6, .until = [&](std::int32_t) { return ++seen == 3; }});
  EXPECT_EQ(result.reason, StopReason::kUntil);
  EXPECT_EQ(result.generated.size(), 3U);
}

TEST_F(Generate, AStopIdBeyondTheVocabularyIsRefused) {
  for (const std::int32_t id : {-1, 512}) {
    EXPECT_TRUE(test::throws(ErrorKind::kUsage, {"stop id", "0 to 511"},
                             [&] { (void)generate(engine_, ids_, {.stop_ids = {id}}); }));
  }
}

TEST_F(Generate, AStopIsReported) {
  const std::atomic<bool> stop = true;
  const GenerateResult result = generate(engine_, ids_, {.max_new_tokens = 6, .stop = &stop});
  EXPECT_TRUE(result.interrupted());
  EXPECT_EQ(result.generated.size(), 1U);
}

// What is drawn depends on seed and position: modes, chunks and threads do not change it.
TEST_F(Generate, DrawsTheSameInEveryMode) {
  const Sampling sampling = {.temperature = 2.0, .top_p = 0.9, .seed = 42};
  const Ids drawn = generate(engine_, ids_, {.max_new_tokens = 12, .sampling = sampling}).generated;
  EXPECT_EQ(
      generate(engine_, ids_,
               {.max_new_tokens = 12, .full_recompute = true, .chunk = 2, .sampling = sampling})
          .generated,
      drawn);
  Engine threads({.model_dir = test::fixture("models/demo"), .threads = 3});
  EXPECT_EQ(generate(threads, ids_, {.max_new_tokens = 12, .sampling = sampling}).generated, drawn);
  const Sampling other = {.temperature = 2.0, .top_p = 0.9, .seed = 43};
  EXPECT_NE(generate(engine_, ids_, {.max_new_tokens = 12, .sampling = other}).generated, drawn);
  EXPECT_NE(generate(engine_, ids_, {.max_new_tokens = 12}).generated, drawn);
}

// A generation that goes on from its own ids draws what it would have drawn without the break.
TEST_F(Generate, ABreakChangesNoDraw) {
  const GenerateOptions options = {.max_new_tokens = 8,
                                   .sampling = {.temperature = 3.0, .seed = 6}};
  const Ids whole = generate(engine_, ids_, options).generated;
  GenerateOptions half = options;
  half.max_new_tokens = 4;
  Ids all = ids_;
  for (int part = 0; part < 2; ++part) {
    const Ids drawn = generate(engine_, all, half).generated;
    all.insert(all.end(), drawn.begin(), drawn.end());
  }
  EXPECT_EQ(Ids(all.begin() + static_cast<std::ptrdiff_t>(ids_.size()), all.end()), whole);
}

// Three turns of a session: each runs its new tokens alone and has, bit for bit, the logits of a
// cold run over the same ids.
TEST_F(Generate, ASessionGoesOnAsAColdRun) {
  for (const Sampling& sampling :
       std::vector<Sampling>{{}, {.temperature = 1.5, .top_p = 0.95, .seed = 3}}) {
    Session session = engine_.new_session();
    Ids all;
    for (const Ids& turn : std::vector<Ids>{{3, 4, 5, 6, 7}, {9}, {300, 2, 1, 8, 8, 8, 8}}) {
      all.insert(all.end(), turn.begin(), turn.end());
      std::size_t first_run = 0;
      const std::size_t before = session.position();
      GenerateOptions options = {.max_new_tokens = 5, .chunk = 3, .sampling = sampling};
      options.on_step = [&](const GenerateStep& step) {
        first_run = step.index == 0 ? step.tokens_run : first_run;
      };
      const GenerateResult warm = generate(engine_, session, all, options);
      EXPECT_EQ(first_run, all.size() - before);
      EXPECT_EQ(before == 0 ? turn.size() : turn.size() + 1, first_run);  // one was not run
      const GenerateResult cold =
          generate(engine_, all, {.max_new_tokens = 5, .sampling = sampling});
      EXPECT_EQ(warm.generated, cold.generated);
      EXPECT_TRUE(test::same_bits(warm.prompt_logits, cold.prompt_logits));
      all.insert(all.end(), warm.generated.begin(), warm.generated.end());
      EXPECT_EQ(session.position(), all.size() - 1);
    }
    EXPECT_THROW((void)generate(engine_, session, ids_, {}), std::logic_error);
    all.push_back(1);
    EXPECT_THROW((void)generate(engine_, session, all, {.full_recompute = true}), std::logic_error);
  }
}

TEST_F(Generate, TellsHowFarThePromptIsRead) {
  std::vector<PromptProgress> calls;
  std::size_t steps = 0;
  GenerateOptions options = {.max_new_tokens = 3, .chunk = 2};
  options.on_prompt = [&](const PromptProgress& progress) {
    EXPECT_EQ(steps, 0U);
    calls.push_back(progress);
  };
  options.on_step = [&](const GenerateStep&) { ++steps; };
  (void)generate(engine_, ids_, options);
  ASSERT_EQ(calls.size(), 3U * 14U);  // three chunks, each enters 13 layers and leaves them
  std::size_t before = 0;
  for (const PromptProgress& call : calls) {
    EXPECT_EQ(call.layers, 3U * 13U);
    EXPECT_EQ(call.tokens, 5U);
    EXPECT_LE(call.layer, 13U);
    EXPECT_GE(call.layers_done, before);
    before = call.layers_done;
  }
  EXPECT_EQ(calls[14].layers_done, 13U);
  EXPECT_EQ(calls[15].layers_done, 14U);
  EXPECT_EQ(calls.back().layers_done, 39U);
}

}  // namespace
}  // namespace k3

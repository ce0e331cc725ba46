// Budgets, shards and a packed trunk give the same bytes; a process takes what its plan says.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <ostream>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "k3/engine.h"

#include "support/model_answers.h"
#include "support/numbers.h"
#include "support/paths.h"
#include "support/run_program.h"
#include "tools/pack_support.h"

namespace k3::tools {
namespace {

namespace fs = std::filesystem;

using test::ProgramResult;

// The bytes in parentheses behind "at least" of the refusal of a trunk budget of one byte.
std::uint64_t least_trunk(EngineOptions options) {
  options.memory.trunk_bytes = 1;
  try {
    const Engine refused(options);
  } catch (const Error& error) {
    const std::string text = error.what();
    return std::stoull(text.substr(text.find('(', text.find("at least")) + 1));
  }
  throw std::logic_error("a ring of one byte was accepted");
}

// Logits of every position: all in memory, then from the shards and from the packed trunk at budgets
// from the floor up, with the fewest slots and with all.
void expect_same_bits_everywhere(const fs::path& model, const std::vector<std::int32_t>& ids) {
  const test::TempDir dir;
  const ProgramResult packed = run_pack({model.string(), dir.path().string(), "--quiet"});
  ASSERT_EQ(packed.status, 0) << packed.err;
  Engine resident({.model_dir = model});
  const std::vector<float> expected = test::all_logits(resident, ids, 0);
  const MemoryPlan& all = resident.memory_plan();
  const std::uint64_t fewest = all.slot_bytes * resident.config().num_experts_per_token;
  for (const bool from_trunk : {false, true}) {
    EngineOptions options{.model_dir = model};
    if (from_trunk) {
      options.trunk_dir = dir.path();
    }
    const std::uint64_t least = least_trunk(options);
    for (const std::uint64_t part : {0U, 1U, 3U, 6U, 8U, 10U}) {
      options.memory.trunk_bytes = least + (all.pinned_memory - least) * part / 10;
      options.memory.cache_bytes = part % 2 == 0 ? fewest : all.slot_bytes * all.expert_slots;
      Engine engine(options);
      EXPECT_TRUE(test::same_bits(test::all_logits(engine, ids, part == 1 ? 2 : 0), expected))
          << (from_trunk ? "packed trunk, " : "shards, ") << *options.memory.trunk_bytes
          << " bytes of trunk, " << engine.memory_plan().expert_slots << " slots";
    }
  }
}

TEST(Budgets, FixturesGiveTheSameBytesFromShardsAndTrunkAtEveryBudget) {
  for (const char* name : {"demo", "deep", "odd", "nodense", "edge"}) {
    SCOPED_TRACE(name);
    expect_same_bits_everywhere(test::fixture(std::string("models/") + name),
                                test::fixture_answers(name).front().full_ids());
  }
}

TEST(Budgets, TheAcceptanceCheckpointGivesTheSameBytesFromShardsAndTrunkAtEveryBudget) {
  const fs::path root = test::shared("acceptance/released-like");
  if (root.empty()) {
    GTEST_SKIP() << test::missing_shared("acceptance/released-like");
  }
  expect_same_bits_everywhere(root / "model", test::acceptance_answers().front().full_ids());
}

// A checkpoint beside which the program itself is small.
class Peak : public testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "a sanitizer's own memory is not part of the plan";
#endif
    const ProgramResult made =
        test::run_program({K3_MAKE_SLICE, model(), "--layers", "kda-dense,mla,kda", "--experts",
                           "24", "--vocab", "1000", "--width-divisor", "4", "--threads", "2"});
    ASSERT_EQ(made.status, 0) << made.err;
  }

  [[nodiscard]] std::string model() const {
    return (dir_.path() / "model").string();
  }

  [[nodiscard]] ProgramResult run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {K3_EXECUTABLE, model(), "--out",
                                         (dir_.path() / "run.json").string(), "--no-progress"});
    return test::run_program(arguments);
  }

  // GB behind `label`.
  static double gigabytes(const std::string& text, const std::string& label) {
    const std::size_t at = text.find(label);
    return at == std::string::npos ? -1.0 : std::stod(text.substr(at + label.size()));
  }

  // Both are printed in MB.
  static void expect_as_planned(const ProgramResult& result, const std::string& what) {
    ASSERT_EQ(result.status, 0) << what << ": " << result.err;
    const double plan = gigabytes(result.out, "  TOTAL");
    const double peak = gigabytes(result.out, "PEAK RSS for the whole run:");
    ASSERT_GT(peak, 0.0) << result.out;
    EXPECT_LE(peak, plan) << what;
    // The plan's 20 MB for program and index are not all used.
    EXPECT_GE(peak, 0.95 * plan - 0.015) << what;
  }

 private:
  test::TempDir dir_;
};

struct PeakRun {
  const char* name;  // letters
  std::vector<std::string> budget;
  std::size_t prompt = 150;  // tokens
  const char* generated = "3";
};

std::ostream& operator<<(std::ostream& out, const PeakRun& run) {
  return out << run.name;
}

// A run each, since with scalar kernels a long prompt takes a minute.
class PeakOver : public Peak, public testing::WithParamInterface<PeakRun> {};

TEST_P(PeakOver, IsThatOfThePlan) {
  const PeakRun& wanted = GetParam();
  std::string prompt = "1";
  for (std::size_t id = 2; id <= wanted.prompt; ++id) {
    prompt += "," + std::to_string(id);
  }
  std::vector<std::string> arguments = wanted.budget;
  arguments.insert(arguments.end(), {"--ids", prompt, "--gen", wanted.generated});
  expect_as_planned(run(arguments), wanted.name);
}

INSTANTIATE_TEST_SUITE_P(
    Budgets,
    PeakOver,
    testing::Values(
        PeakRun{"Default", {}},
        PeakRun{"Ram", {"--ram", "0.3"}},
        PeakRun{"LessRam", {"--ram", "0.2"}},
        PeakRun{"Ultra", {"--preset", "ultra"}},
        PeakRun{"Laptop", {"--preset", "laptop"}},
        PeakRun{"Server", {"--preset", "server"}},
        PeakRun{"TrunkAndCache", {"--trunk-gb", "0.1", "--cache-gb", "0.03"}},
        PeakRun{"FullRecompute", {"--ultra-low-memory", "--full-recompute", "--ram", "0.2"}, 2},
        PeakRun{"ShortPrompt", {"--ram", "0.25"}, 2, "6"}),
    [](const testing::TestParamInfo<PeakRun>& parameter) {
      return std::string(parameter.param.name);
    });

TEST_F(Peak, ABudgetLargerThanCanBeUsedIsReported) {
  const ProgramResult result = run({"--trunk-gb", "1.5", "--ids", "1,2", "--gen", "1"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.out.find("stay unused"), std::string::npos) << result.out;
}

}  // namespace
}  // namespace k3::tools

// The program as a user runs it, on the shipped checkpoint.

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "kernels/isa.h"
#include "support/model_answers.h"
#include "support/numbers.h"
#include "support/paths.h"
#include "support/run_program.h"

namespace k3 {
namespace {

namespace fs = std::filesystem;
using test::ProgramResult;

std::string join(const std::vector<std::int32_t>& ids) {
  std::string text;
  for (const std::int32_t id : ids) {
    text.append(text.empty() ? "" : ",").append(std::to_string(id));
  }
  return text;
}

// Contains `part`; shows the whole text otherwise.
testing::AssertionResult has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << "no \"" << part << "\" in: " << text;
}

class Program : public testing::Test {
 protected:
  // k3 <demo model> <arguments>, with the record going to the test's folder.
  ProgramResult run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {demo(), "--out", out().string()});
    return run_raw(std::move(arguments));
  }

  static ProgramResult run_raw(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), K3_EXECUTABLE);
    return test::run_program(arguments);
  }

  static std::string demo() { return test::fixture("models/demo").string(); }

  [[nodiscard]] fs::path out() const { return dir_.path() / "run.json"; }

  [[nodiscard]] nlohmann::json record() const {
    return nlohmann::json::parse(std::ifstream(out()));
  }

  // A copy of the demo model that a test may damage.
  [[nodiscard]] fs::path copy_of_demo() const {
    fs::path copy = dir_.path() / "model";
    fs::copy(demo(), copy);
    return copy;
  }

  test::TempDir dir_;
};

TEST_F(Program, GeneratesTheReferenceTokens) {
  for (const test::PromptAnswer& answer : test::fixture_answers("demo")) {
    const fs::path logits = dir_.path() / "logits.bin";
    const ProgramResult result =
        run({"--ids", join(answer.ids), "--gen", std::to_string(answer.generated.size()),
             "--dump-logits", logits.string(), "--no-progress"});
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.err, "");
    EXPECT_TRUE(has(result.out, "generated ids: " + join(answer.generated) + "\n"));
    EXPECT_EQ(record().at("generated_ids"), nlohmann::json(answer.generated));
    const std::vector<float> found = test::read_floats(logits);
    const std::size_t vocab = found.size();
    const auto last =
        answer.logits.begin() + static_cast<std::ptrdiff_t>((answer.ids.size() - 1) * vocab);
    EXPECT_TRUE(test::position_passes(found, {last, last + static_cast<std::ptrdiff_t>(vocab)}));
  }
}

TEST_F(Program, ReportsTheRun) {
  const ProgramResult result = run({"--ids", "3,4,5", "--gen", "2"});
  for (const char* line : {"config: 13 layers", "indexed ", " tensors from ", "STEP", "TOKEN",
                           "SECONDS", "2 tokens in ", "s/token average", "PEAK RSS"}) {
    EXPECT_TRUE(has(result.out, line));
  }
}

TEST_F(Program, TheRecordIsStrictJsonWithTheKnownFields) {
  ASSERT_EQ(run({"--ids", "3,4,5", "--gen", "2"}).status, 0);
  const nlohmann::json json = record();
  EXPECT_EQ(json.at("prompt_ids"), nlohmann::json({3, 4, 5}));
  EXPECT_EQ(json.at("generated_ids").size(), 2U);
  EXPECT_EQ(json.at("full_ids").size(), 5U);
  EXPECT_EQ(json.at("layers"), 13);
  EXPECT_GT(json.at("seconds_per_token").get<double>(), 0.0);
}

TEST_F(Program, ModesThreadsAndChunksGiveTheSameLogits) {
  std::string ids = "9";  // enough of them that the work is split over threads
  for (int id = 10; id < 130; ++id) {
    ids += "," + std::to_string(id);
  }
  std::vector<float> expected;
  for (const std::vector<std::string>& options :
       std::vector<std::vector<std::string>>{{"--incremental"},
                                             {"--full-recompute"},
                                             {"--threads", "1"},
                                             {"--threads", "3"},
                                             {"--threads", "7"},
                                             {"--chunk", "1"},
                                             {"--chunk", "5"}}) {
    const fs::path logits = dir_.path() / "logits.bin";
    std::vector<std::string> arguments = {"--ids",        ids, "--gen", "1", "--dump-logits",
                                          logits.string()};
    arguments.insert(arguments.end(), options.begin(), options.end());
    ASSERT_EQ(run(arguments).status, 0);
    const std::vector<float> found = test::read_floats(logits);
    expected = expected.empty() ? found : expected;
    EXPECT_TRUE(test::same_bits(found, expected)) << options.front();
  }
}

// K3_ISA forces the kernels; every set that the machine has gives the same logits.
TEST_F(Program, EveryInstructionSetGivesTheSameLogits) {
  const std::string ids = "9,8,7,6,5,4,3,2,1,11,12,13,14,15,16,17,18,19,20";
  std::vector<float> expected;
  for (const kernels::KernelTable* table : kernels::supported_tables()) {
    const fs::path logits = dir_.path() / "logits.bin";
    const ProgramResult result = test::run_program(
        {"/usr/bin/env", std::string("K3_ISA=") + table->name, K3_EXECUTABLE, demo(), "--ids", ids,
         "--gen", "1", "--out", out().string(), "--dump-logits", logits.string()});
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_TRUE(has(result.out, std::string(", ") + table->name + ", "));
    const std::vector<float> found = test::read_floats(logits);
    expected = expected.empty() ? found : expected;
    EXPECT_TRUE(test::same_bits(found, expected)) << table->name;
  }
}

TEST_F(Program, AnInstructionSetOfControlCharactersIsPrintedEscaped) {
  const ProgramResult result =
      test::run_program({"/usr/bin/env", "K3_ISA=a\x1B[31mb", K3_EXECUTABLE, demo(), "--ids", "1",
                         "--out", out().string()});
  EXPECT_EQ(result.status, 2);
  EXPECT_TRUE(has(result.err, "K3_ISA"));
  EXPECT_EQ(result.err.find('\x1B'), std::string::npos);
}

TEST_F(Program, AnUnknownInstructionSetIsStatus2WithTheChoices) {
  const ProgramResult result = test::run_program(
      {"/usr/bin/env", "K3_ISA=mmx", K3_EXECUTABLE, demo(), "--ids", "1", "--out", out().string()});
  EXPECT_EQ(result.status, 2);
  EXPECT_TRUE(has(result.err, "scalar"));
  EXPECT_TRUE(has(result.err, "\"mmx\""));
  EXPECT_EQ(result.out, "");
}

// OpenMP takes 2^32 + 2 for 2, and the number of processors for what it cannot read.
TEST_F(Program, AThreadNumberThatOpenMpWouldMisreadIsStatus2) {
  for (const std::string text :
       {"4294967298", "1000000", "1025", "0", "-1", "", " ", ",2", "two", "2 x"}) {
    const ProgramResult result =
        test::run_program({"/usr/bin/env", "OMP_NUM_THREADS=" + text, K3_EXECUTABLE, demo(),
                           "--ids", "1", "--out", out().string()});
    EXPECT_EQ(result.status, 2) << text;
    EXPECT_TRUE(has(result.err, "k3: OMP_NUM_THREADS")) << result.err;
    EXPECT_TRUE(has(result.err, "found \"" + text + "\"")) << result.err;
  }
}

TEST_F(Program, ThreadsFromTheEnvironmentMayHaveBlanksAndLevels) {
  for (const std::string text : {"3", " 3 ", "3,1", " 3 , 1"}) {
    const ProgramResult result =
        test::run_program({"/usr/bin/env", "OMP_NUM_THREADS=" + text, K3_EXECUTABLE, demo(),
                           "--ids", "1", "--gen", "1", "--out", out().string()});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_TRUE(has(result.out, ", 3 threads\n")) << text << result.out;
  }
}

TEST_F(Program, TeacherForcingCountsAgreement) {
  const test::PromptAnswer answer = test::fixture_answers("demo").front();
  const ProgramResult result = run({"--ids", join(answer.full_ids()), "--tf-check"});
  ASSERT_EQ(result.status, 0) << result.err;
  std::size_t agreeing = 0;
  const std::vector<std::int32_t> ids = answer.full_ids();
  for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
    agreeing += answer.predictions[i] == ids[i + 1] ? 1U : 0U;
  }
  EXPECT_TRUE(has(result.out, std::to_string(agreeing) + " of " + std::to_string(ids.size() - 1)));
  EXPECT_EQ(record().at("tf_predictions"), nlohmann::json(answer.predictions));
}

TEST_F(Program, HelpAndVersionNeedNoModel) {
  const ProgramResult help = run_raw({"--help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_TRUE(has(help.out, "--full-recompute"));
  const ProgramResult version = run_raw({"--version"});
  EXPECT_EQ(version.status, 0);
  EXPECT_TRUE(has(version.out, "k3 0."));
}

struct BadUsage {
  std::vector<std::string> arguments;
  std::string reason;  // stands in the message
};

TEST_F(Program, UsageErrorsAreStatus2WithTheReason) {
  const std::vector<BadUsage> cases = {
      {{}, "--ids"},
      {{"--ids", "1,,2"}, "entry 2"},
      {{"--ids", "1,x"}, "\"x\""},
      {{"--ids", "-5"}, "\"-5\""},
      {{"--ids", ""}, "entry 1"},
      {{"--ids", "1000000000000"}, "1000000000000"},
      {{"--ids", "3,512"}, "0 to 511"},
      {{"--ids", "1", "--gen", "0"}, "--gen"},
      {{"--ids", "1", "--gen", "-3"}, "--gen"},
      {{"--ids", "1", "--gen", "x"}, "found \"x\""},
      {{"--ids", "1", "--gen", "1.5"}, "found \"1.5\""},
      {{"--ids", "1", "--gen", "99999999999999999999"}, "found \"99999999999999999999\""},
      {{"--ids", "1", "--layers", "0"}, "--layers"},
      {{"--ids", "1", "--layers", "14"}, "1 to 13"},
      {{"--ids", "1", "--threads", "0"}, "--threads"},
      {{"--ids", "1", "--threads", "100000"}, "--threads"},
      {{"--ids", "1", "--chunk", "0"}, "--chunk"},
      {{"--ids", "1", "--incremental", "--full-recompute"}, "--full-recompute"},
      {{"--ids", "1", "--no-such-flag"}, "--no-such-flag"},
      {{"--ids", "1", "--tf-check"}, "two ids"},
      {{"--ids", "1,2", "--tf-check", "--dump-logits", "x"}, "--dump-logits"},
      {{"--ids", "1", "--config", "no-such-config.json"}, "no-such-config.json"},
      {{"--ids", "1", "--out", ""}, "name"},
      {{"--ids", "1", "--dump-logits", ""}, "name"},
      {{"--ids", "1", "--out", "one.bin", "--dump-logits", "./one.bin"}, "same file"},
      {{"--ids", "1", "--dump-logits", "/no/such/folder/l.bin"}, "/no/such/folder"},
  };
  for (const BadUsage& bad : cases) {
    const ProgramResult result = run(bad.arguments);
    EXPECT_EQ(result.status, 2) << bad.reason;
    EXPECT_EQ(result.out, "") << bad.reason;
    EXPECT_TRUE(has(result.err, bad.reason));
    EXPECT_FALSE(fs::exists(out())) << bad.reason;
  }
}

TEST_F(Program, ALaterFlagWins) {
  const ProgramResult result = run({"--ids", "1", "--gen", "5", "--gen", "2"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(record().at("generated_ids").size(), 2U);
}

TEST_F(Program, AnUnwritableOutFailsBeforeCompute) {
  const ProgramResult result = run_raw({demo(), "--ids", "1", "--out", "/no/such/folder/run.json"});
  EXPECT_EQ(result.status, 2);
  EXPECT_TRUE(has(result.err, "/no/such/folder/run.json"));
  EXPECT_EQ(result.out, "");
}

TEST_F(Program, AFullDiskIsStatus1AndNamesTheFile) {
  const ProgramResult result = run_raw({demo(), "--ids", "1", "--gen", "1", "--out", "/dev/full"});
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(has(result.err, "/dev/full"));
}

TEST_F(Program, AMissingModelIsStatus2) {
  const ProgramResult result = run_raw({(dir_.path() / "nothing").string(), "--ids", "1"});
  EXPECT_EQ(result.status, 2);
  EXPECT_TRUE(has(result.err, "config.json"));
}

TEST_F(Program, ATruncatedShardIsStatus1AndNamesItsFile) {
  const fs::path model = copy_of_demo();
  const fs::path shard = model / "model-00003-of-000016.safetensors";
  ASSERT_TRUE(fs::exists(shard));
  fs::resize_file(shard, fs::file_size(shard) - 1);
  const ProgramResult result = run_raw({model.string(), "--ids", "1", "--out", out().string()});
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(has(result.err, "model-00003-of-000016.safetensors"));
  EXPECT_FALSE(fs::exists(out()));
}

TEST_F(Program, FirstLayersRunWithoutTheLaterShards) {
  const fs::path model = copy_of_demo();
  fs::remove(model / "model-00013-of-000016.safetensors");
  EXPECT_EQ(run_raw({model.string(), "--ids", "1", "--out", out().string()}).status, 1);
  const ProgramResult result = run_raw(
      {model.string(), "--ids", "1", "--gen", "1", "--layers", "12", "--out", out().string()});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(record().at("layers"), 12);
}

TEST_F(Program, AnInterruptStopsTheRunAndKeepsWhatThereIs) {
  const ProgramResult result = test::run_program(
      {K3_EXECUTABLE, demo(), "--ids", "1", "--gen", "100000", "--out", out().string()}, "STEP");
  EXPECT_EQ(result.status, 130);
  EXPECT_TRUE(has(result.out, "(interrupted)"));
  EXPECT_TRUE(record().at("interrupted").get<bool>());
  EXPECT_LT(record().at("generated_ids").size(), 100000U);
}

}  // namespace
}  // namespace k3

// k3-pack as a user runs it: killed, interrupted, on a full disk, with wrong arguments.

#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/paths.h"
#include "support/run_program.h"
#include "support/safetensors_builder.h"
#include "tools/pack_support.h"

namespace k3::tools {
namespace {

namespace fs = std::filesystem;

using nlohmann::json;
using test::fixture;
using test::ProgramResult;
using test::read_file;
using test::write_file;
using testing::HasSubstr;

TEST(PackFixtures, OfALayerThatIsOneRunTheRunIsCopiedAsOthersDo) {
  const test::TempDir dir;
  const ProgramResult result = run_pack({fixture("models/edge").string(), dir.path().string()});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(read_file(dir.path() / "trunk.bin"), read_file(fixture("trunk/edge") / "trunk.bin"));
  json ours = json::parse(read_file(dir.path() / "trunk.json"));
  const json others = json::parse(read_file(fixture("trunk/edge") / "trunk.json"));
  ours.erase("source_xxh128");
  for (json& layer : ours["layers"]) {
    layer.erase("xxh128");
  }
  EXPECT_EQ(ours, others);
}

TEST(PackFixtures, EveryFixtureModelPacksAndChecks) {
  for (const std::string name : {"edge", "demo", "deep", "nodense", "odd"}) {
    const test::TempDir dir;
    const std::string model = fixture("models/" + name).string();
    const ProgramResult packed = run_pack({model, dir.path().string(), "--read-back", "--quiet"});
    EXPECT_EQ(packed.status, 0) << packed.err;
    EXPECT_EQ(packed.out + packed.err, "");
    const ProgramResult checked = run_pack({"--check", model, dir.path().string()});
    EXPECT_EQ(checked.status, 0) << checked.err;
    EXPECT_THAT(checked.out, HasSubstr("equals the shards"));
  }
}

TEST(PackFixtures, OthersTrunkIsChecked) {
  const ProgramResult result = run_pack(
      {fixture("models/edge").string(), fixture("trunk/edge").string(), "--check", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const json report = json::parse(result.out);
  EXPECT_EQ(report.at("action"), "check");
  EXPECT_EQ(report.at("layers"), 3);
  EXPECT_EQ(report.at("bytes"), 200704);
}

// The program, on a checkpoint that takes a moment.
class PackProgram : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    suite_dir = new test::TempDir;
    const ProgramResult made = test::run_program(
        {K3_MAKE_SLICE, model(), "--width-divisor", "8", "--experts", "16", "--vocab", "256"});
    ASSERT_EQ(made.status, 0) << made.err;
  }

  static void TearDownTestSuite() {
    delete suite_dir;
    suite_dir = nullptr;
  }

  static std::string model() { return (suite_dir->path() / "a model, größer").string(); }

  // Starts the program, and kills it with `signal` after `delay`. Its exit status, or 128 + signal.
  static int kill_after(const fs::path& out, int signal, std::chrono::microseconds delay) {
    const std::string model_name = model();
    const pid_t child = fork();
    if (child == 0) {
      execl(K3_PACK, K3_PACK, model_name.c_str(), out.c_str(), "--quiet",
            static_cast<char*>(nullptr));
      _exit(127);
    }
    std::this_thread::sleep_for(delay);
    kill(child, signal);
    int state = 0;
    waitpid(child, &state, 0);
    return WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
  }

  static test::TempDir* suite_dir;
};

test::TempDir* PackProgram::suite_dir = nullptr;

TEST_F(PackProgram, KilledAtAnyPointTheNextRunMakesItWhole) {
  const test::TempDir place;
  const fs::path out = place.path() / "trunk dir";
  int killed = 0;
  for (int round = 0; round < 12; ++round) {
    const int status = kill_after(out, SIGKILL, std::chrono::milliseconds(7 * round + 3));
    killed += status == 128 + SIGKILL ? 1 : 0;
    if (fs::exists(out / "trunk.json")) {  // then it is whole
      EXPECT_EQ(run_pack({"--check", model(), out.string()}).status, 0);
    }
    if (round % 3 == 2) {
      const ProgramResult finished = run_pack({model(), out.string(), "--json"});
      ASSERT_EQ(finished.status, 0) << finished.err;
      EXPECT_EQ(run_pack({"--check", model(), out.string()}).status, 0);
      EXPECT_EQ(names_in(out), kWhole);
      fs::remove_all(out);
    }
  }
  EXPECT_GT(killed, 0);
}

TEST_F(PackProgram, InterruptedItIsStatus130AndGoesOn) {
  const test::TempDir place;
  for (int round = 0; round < 10; ++round) {
    const fs::path out = place.path() / std::to_string(round);
    const int status = kill_after(out, SIGINT, std::chrono::milliseconds(10 * round + 5));
    if (status == 130) {
      EXPECT_FALSE(fs::exists(out / "trunk.json"));
    }
    const ProgramResult finished = run_pack({model(), out.string()});
    EXPECT_EQ(finished.status, 0) << finished.err;
    EXPECT_EQ(names_in(out), kWhole);
  }
}

TEST_F(PackProgram, AFullDiskIsRefusedEarly) {
  const test::TempDir place;
  if (mount("tmpfs", place.path().c_str(), "tmpfs", 0, "size=1m") != 0) {
    GTEST_SKIP() << "no tmpfs can be mounted here: the test of a full disk needs root";
  }
  const ProgramResult result = run_pack({model(), (place.path() / "new").string()});
  const bool made = fs::exists(place.path() / "new");
  umount(place.path().c_str());
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("disk too full for the packed trunk"));
  EXPECT_THAT(result.err, HasSubstr("bytes free"));
  EXPECT_FALSE(made);
}

TEST_F(PackProgram, AFileThatMayNotGrowIsAnErrorThatLeavesNoTrunk) {
  const test::TempDir place;
  const std::string out = place.path().string();
  const ProgramResult result = test::run_program(
      {"/bin/bash", "-c", "ulimit -f 1000; exec \"$0\" \"$1\" \"$2\"", K3_PACK, model(), out});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("trunk.bin.partial"));
  EXPECT_THAT(result.err, HasSubstr("File too large"));
  EXPECT_FALSE(fs::exists(place.path() / "trunk.json"));
  EXPECT_EQ(run_pack({model(), out}).status, 0);
  EXPECT_EQ(names_in(place.path()), kWhole);
}

TEST_F(PackProgram, ProgressIsLinesWithoutATerminalAndCanBeSilenced) {
  const test::TempDir place;
  const ProgramResult loud = run_pack({model(), (place.path() / "1").string()});
  EXPECT_EQ(loud.status, 0);
  EXPECT_THAT(loud.err, HasSubstr("packing: layer 7/7  100.0%"));
  EXPECT_THAT(loud.err, HasSubstr("GB/s  ETA 0 s\n"));
  EXPECT_EQ(loud.err.find('\r'), std::string::npos);
  EXPECT_THAT(loud.out, HasSubstr("packed: 7 layers"));
  const ProgramResult silent =
      run_pack({model(), (place.path() / "2").string(), "--no-progress", "--json"});
  EXPECT_EQ(silent.err, "");
  EXPECT_EQ(json::parse(silent.out).at("layers"), 7);
}

TEST(PackUsage, ErrorsAreStatus2) {
  const test::TempDir dir;
  const std::string model = fixture("models/edge").string();
  const std::string out = (dir.path() / "out").string();
  EXPECT_EQ(run_pack({}).status, 2);
  EXPECT_EQ(run_pack({model, out, "third"}).status, 2);
  EXPECT_EQ(run_pack({model, out, "--layers", "0"}).status, 2);
  EXPECT_EQ(run_pack({model, out, "--check", "--force"}).status, 2);
  const ProgramResult many = run_pack({model, out, "--layers", "4"});
  EXPECT_EQ(many.status, 2);
  EXPECT_THAT(many.err, HasSubstr("--layers: expected 1 to 3, found 4"));
  EXPECT_EQ(run_pack({dir.path().string(), out}).status, 2);  // no config.json
  EXPECT_EQ(run_pack({model, ""}).status, 2);
  EXPECT_EQ(run_pack({model, out, "--check"}).status, 2);
  EXPECT_FALSE(fs::exists(out));
  write_file(dir.path() / "file", "");
  EXPECT_EQ(run_pack({model, (dir.path() / "file").string()}).status, 2);
}

TEST(PackUsage, AConfigMayBeNamedAndLayersCut) {
  const test::TempDir dir;
  const ProgramResult result =
      run_pack({fixture("models/edge").string(), dir.path().string(), "--layers", "2", "--config",
                (fixture("models/edge") / "config.json").string()});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(json::parse(read_file(dir.path() / "trunk.json")).at("n_layers"), 2);
}

TEST(PackUsage, TheModelMayComeFromTheEnvironment) {
  const test::TempDir dir;
  const std::string out = (dir.path() / "out").string();
  const ProgramResult result = test::run_program(
      {"/usr/bin/env", "K3_MODEL_DIR=" + fixture("models/edge").string(), K3_PACK, out});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(names_in(out), kWhole);
  EXPECT_EQ(test::run_program({"/usr/bin/env", "-u", "K3_MODEL_DIR", K3_PACK, out}).status, 2);
}

TEST(PackUsage, HelpSaysWhatIsProved) {
  const ProgramResult result = run_pack({"--help"});
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.out, HasSubstr("XXH128"));
  EXPECT_THAT(result.out, HasSubstr("--read-back"));
}

}  // namespace
}  // namespace k3::tools

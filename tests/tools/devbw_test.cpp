// k3-devbw as a user runs it.

#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/paths.h"
#include "support/run_program.h"
#include "support/safetensors_builder.h"

namespace k3::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

ProgramResult devbw(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), K3_DEVBW);
  return run_program(arguments);
}

class Devbw : public testing::Test {
 protected:
  Devbw() {
    std::filesystem::create_directory(dir_.path() / "model");
    write_file(dir_.path() / "model" / "a.safetensors", std::string(3'000'000, 'a'));
    write_file(dir_.path() / "model" / "trunk.bin", std::string(1'234'567, 'b'));
    write_file(dir_.path() / "model" / "notes.txt", "not read");
  }

  [[nodiscard]] std::string model() const { return (dir_.path() / "model").string(); }

  TempDir dir_;
};

TEST_F(Devbw, MeasuresAModelDirectoryAndNamesTheBestSetting) {
  const ProgramResult result = devbw({model(), "--seconds", "0.001"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("2 files"));
  EXPECT_THAT(result.out, HasSubstr("PATTERN"));
  EXPECT_THAT(result.out, HasSubstr("best: "));
  EXPECT_EQ(result.err, "");
}

TEST_F(Devbw, JsonHoldsEverySampleOfTheGrid) {
  const ProgramResult result = devbw({model(), "--seconds", "0.001", "--json", "--grid",
                                      "--buffered", "--readers", "3,1", "--request-kib", "64,16"});
  ASSERT_EQ(result.status, 0) << result.err;
  const json report = json::parse(result.out).at("devices").at(0);
  EXPECT_EQ(report.at("files"), 2);
  EXPECT_EQ(report.at("samples").size(), 4U + 3);  // and the patterns of the best
  EXPECT_EQ(report.at("samples")[0].at("readers"), 1);
  EXPECT_EQ(report.at("samples")[0].at("request_bytes"), 16384);
  EXPECT_EQ(report.at("samples")[0].at("direct"), false);
  EXPECT_EQ(report.at("samples")[3].at("readers"), 3);
  EXPECT_EQ(report.at("samples")[3].at("request_bytes"), 65536);
  EXPECT_GT(report.at("best").at("mix_bytes_per_second"), 0.0);
}

TEST_F(Devbw, ScratchFileIsGoneAfterwards) {
  const std::filesystem::path place = dir_.path() / "scratch";
  std::filesystem::create_directory(place);
  const ProgramResult result =
      devbw({"--make-file", place.string(), "--size", "0.002", "--seconds", "0.001"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("1 files"));
  EXPECT_TRUE(std::filesystem::is_empty(place));
}

TEST_F(Devbw, FullDiskIsRefusedBeforeAByteIsWritten) {
  const ProgramResult result = devbw({"--make-file", dir_.path().string(), "--size", "1000000"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("disk too full"));
  EXPECT_THAT(result.err, HasSubstr("1000000000000000 bytes"));
}

TEST_F(Devbw, UsageErrorsAreStatus2) {
  EXPECT_EQ(devbw({}).status, 2);
  EXPECT_EQ(devbw({model(), "--readers", "0"}).status, 2);
  EXPECT_EQ(devbw({model(), "--direct", "--buffered"}).status, 2);
  EXPECT_EQ(devbw({"--make-file", dir_.path().string()}).status, 2);
  const ProgramResult absent = devbw({(dir_.path() / "absent.bin").string()});
  EXPECT_EQ(absent.status, 2);
  EXPECT_THAT(absent.err, HasSubstr("absent.bin"));
  const ProgramResult empty = devbw({dir_.path().string()});
  EXPECT_EQ(empty.status, 2);
  EXPECT_THAT(empty.err, HasSubstr("*.safetensors or trunk.bin"));
  EXPECT_EQ(devbw({"--make-file", (dir_.path() / "absent").string(), "--size", "1"}).status, 2);
}

TEST_F(Devbw, HelpNeedsNothing) {
  const ProgramResult result = devbw({"--help"});
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.out, HasSubstr("--make-file"));
}

}  // namespace
}  // namespace k3::test

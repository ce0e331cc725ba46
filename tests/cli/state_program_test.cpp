// --save-state and --load-state through the program.

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/text_program.h"
#include "kernels/isa.h"
#include "support/paths.h"
#include "support/run_program.h"

namespace k3 {
namespace {

namespace fs = std::filesystem;
using test::has;
using test::Ids;
using test::ProgramResult;
using Arguments = std::vector<std::string>;

class StateProgram : public test::TextProgramTest {
 protected:
  [[nodiscard]] std::string file() const { return (dir_.path() / "state").string(); }

  [[nodiscard]] std::string content() const {
    std::ifstream stream(file(), std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  // Runs and gives the generated ids.
  Ids ids_of(const Arguments& arguments) {
    last_ = run(arguments);
    EXPECT_EQ(last_.status, 0) << last_.err;
    return last_.status == 0 ? generated() : Ids();
  }

  void expect_refused(const Arguments& arguments, const std::vector<std::string>& parts) {
    const ProgramResult result = run(arguments);
    EXPECT_EQ(result.status, 2) << result.out;
    for (const std::string& part : parts) {
      EXPECT_TRUE(has(result.err, part));
    }
    EXPECT_EQ(result.out.find("STEP"), std::string::npos);
  }

  ProgramResult last_;
};

template <typename T>
std::vector<T> operator+(std::vector<T> a, const std::vector<T>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST_F(StateProgram, FourAndFourTokensAreTheEightOfOneRun) {
  const Ids eight = ids_of({"--prompt", "Hello", "--gen", "8"});
  const Ids four = ids_of({"--prompt", "Hello", "--gen", "4", "--save-state", file()});
  const Ids prompt = record().at("prompt_ids").get<Ids>();
  EXPECT_TRUE(has(last_.out, "saved " + std::to_string(prompt.size() + 4) + " ids"));
  EXPECT_FALSE(record().contains("resumed_ids"));
  const Ids rest = ids_of({"--load-state", file(), "--gen", "4", "--save-state", file()});
  EXPECT_EQ(four + rest, eight);
  EXPECT_TRUE(has(last_.out, tokenizer_.decode(rest)));
  EXPECT_EQ(record().at("prompt_ids").get<Ids>(), prompt + four);
  EXPECT_EQ(record().at("full_ids").get<Ids>(), prompt + eight);
  EXPECT_EQ(record().at("resumed_ids"), prompt.size() + 4);
  EXPECT_EQ(record().at("resumed_position"), prompt.size() + 3);
  // The file goes on from where it was left.
  const Ids sixteen = ids_of({"--prompt", "Hello", "--gen", "16"});
  EXPECT_EQ(eight + ids_of({"--load-state", file(), "--gen", "8"}), sixteen);
}

TEST_F(StateProgram, ThePromptContinuesTheSavedSequence) {
  const Ids begun = ids_of({"--ids", "3,4,5", "--gen", "3", "--save-state", file()});
  const Ids all = Ids{3, 4, 5} + begun;
  const Ids added = ids_of({"--load-state", file(), "--ids", "9,8", "--gen", "5"});
  EXPECT_EQ(record().at("prompt_ids").get<Ids>(), all + Ids({9, 8}));
  EXPECT_EQ(added, ids_of({"--ids", test::joined(all + Ids({9, 8})), "--gen", "5"}));
  const fs::path text = dir_.path() / "text";
  std::ofstream(text) << " and so";
  const Ids more = all + tokenizer_.encode(" and so");
  for (const Arguments& prompt :
       {Arguments{"--prompt", " and so"}, Arguments{"--prompt-file", text.string()}}) {
    const Ids found = ids_of(Arguments{"--load-state", file(), "--gen", "5"} + prompt);
    EXPECT_EQ(record().at("prompt_ids").get<Ids>(), more);
    EXPECT_EQ(found, ids_of({"--ids", test::joined(more), "--gen", "5"}));
  }
}

TEST_F(StateProgram, WithoutATokenizerTheIdsGoOn) {
  const Ids eight = ids_of({"--ids", "3,4,5", "--gen", "8"});
  const Ids four = ids_of({"--ids", "3,4,5", "--gen", "4", "--save-state", file()});
  const ProgramResult rest =
      test::run_program({"/usr/bin/env", "-u", "K3_TOK_FILES", K3_EXECUTABLE, demo(),
                         "--load-state", file(), "--gen", "4", "--quiet", "--out", out().string()});
  EXPECT_EQ(rest.status, 0) << rest.err;
  EXPECT_EQ(four + generated(), eight);
  EXPECT_EQ(rest.out, test::joined(generated()) + "\n");
}

TEST_F(StateProgram, SavedWithOneInstructionSetResumedWithAnother) {
  const Ids eight = ids_of({"--ids", "3,4,5", "--gen", "8"});
  const auto run_with = [this](const std::string& isa, const Arguments& arguments) {
    Arguments argv = command(arguments);
    argv.insert(argv.begin(), {"/usr/bin/env", "K3_ISA=" + isa});
    EXPECT_EQ(test::run_program(argv).status, 0);
    return generated();
  };
  for (const kernels::KernelTable* table : kernels::supported_tables()) {
    const Ids four =
        run_with(table->name, {"--ids", "3,4,5", "--gen", "4", "--save-state", file()});
    for (const kernels::KernelTable* other : kernels::supported_tables()) {
      EXPECT_EQ(four + run_with(other->name, {"--load-state", file(), "--gen", "4"}), eight)
          << table->name << ", then " << other->name;
    }
  }
}

TEST_F(StateProgram, FlagsThatContradict) {
  for (const char* state : {"--save-state", "--load-state"}) {
    for (const Arguments& other :
         {Arguments{"--chat"}, Arguments{"--ids", "1", "--full-recompute"},
          Arguments{"--ids", "1,2", "--tf-check"}, Arguments{"--ids", "1", "--print-ids"},
          Arguments{"--ids", "1", "--ultra-low-memory", "--full-recompute"}}) {
      expect_refused(other + Arguments{state, file()},
                     {state, other.size() == 1 ? other.front() : other.back(), "contradict"});
    }
  }
  EXPECT_FALSE(fs::exists(file()));
  expect_refused({"--load-state", file(), "--ids", "1", "--prompt", "x"}, {"exactly one"});
  expect_refused({"--ids", "1", "--save-state", out().string()}, {"--out and --save-state"});
  expect_refused({"--ids", "1", "--save-state", file(), "--dump-logits", file()},
                 {"--dump-logits and --save-state"});
}

TEST_F(StateProgram, APathThatCannotBeWrittenIsAnErrorBeforeAnyWork) {
  for (const std::string& path :
       {(dir_.path() / "none" / "state").string(), dir_.path().string(), std::string()}) {
    const ProgramResult result = run({"--ids", "1", "--save-state", path});
    EXPECT_EQ(result.status, 2);
    EXPECT_TRUE(has(result.err, path));
    EXPECT_EQ(result.out, "");
  }
}

TEST_F(StateProgram, FilesThatCannotBeAccepted) {
  expect_refused({"--load-state", file()}, {"--load-state " + file(), "No such file"});
  expect_refused({"--load-state", dir_.path().string()}, {"--load-state", "directory"});
  std::ofstream(file())
      << "no state at all, but a text that is long enough to be one, at its begin";
  expect_refused({"--load-state", file()}, {"--load-state " + file(), "truncated, or no saved"});
  std::ofstream(file(), std::ios::app) << std::string(100, '.');
  expect_refused({"--load-state", file()}, {"--load-state " + file(), "no saved state"});
  ids_of({"--ids", "3", "--gen", "2", "--layers", "12", "--save-state", file()});
  const std::string before = content();
  expect_refused({"--load-state", file(), "--save-state", file()},
                 {"--load-state " + file(), "another model", "expected 13, found 12"});
  EXPECT_EQ(content(), before);
}

TEST_F(StateProgram, AFullDeviceIsStatus1) {
  const ProgramResult result = run({"--ids", "3", "--gen", "2", "--save-state", "/dev/full"});
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(has(result.err, "/dev/full"));
  EXPECT_TRUE(has(result.err, "not saved"));
}

// Between two passes the state is whole and saved; within one it is not, and the old file stays.
TEST_F(StateProgram, AnInterruptLeavesAWholeFile) {
  ids_of({"--ids", "3,4,5", "--gen", "2", "--save-state", file()});
  const std::string before = content();
  const ProgramResult result =
      test::run_program(command({"--load-state", file(), "--ids", "7", "--gen", "20000",
                                 "--save-state", file(), "--no-progress"}),
                        "\n    3 ");
  EXPECT_EQ(result.status, 130) << result.err;
  const Ids all = record().at("full_ids").get<Ids>();
  if (content() == before) {
    EXPECT_TRUE(has(result.err, "--save-state " + file() + ": not saved"));
    ids_of({"--load-state", file(), "--gen", "1"});
  } else {
    EXPECT_EQ(result.err.find("not saved"), std::string::npos);
    ids_of({"--load-state", file(), "--gen", "1"});
    EXPECT_EQ(record().at("prompt_ids").get<Ids>(), all);
  }
}

}  // namespace
}  // namespace k3

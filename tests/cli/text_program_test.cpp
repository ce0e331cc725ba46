// Text in and text out through the program: prompts, streaming, stops, sampling, progress.

#include "cli/text_program.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "k3/tokenizer.h"

#include "kernels/isa.h"
#include "support/paths.h"
#include "support/run_program.h"
#include "support/tokenizer_files.h"

namespace k3 {
namespace {

namespace fs = std::filesystem;
using test::has;
using test::Ids;
using test::ProgramResult;

class TextProgram : public test::TextProgramTest {};

TEST_F(TextProgram, TheTextStandsInItsBlockAndIsTheDecodedWhole) {
  const ProgramResult result = run({"--prompt", "Hello", "--gen", "20"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(record().at("prompt_ids").get<Ids>(), tokenizer_.encode("Hello"));
  EXPECT_TRUE(has(result.out, "--- generated text ---\n" + tokenizer_.decode(generated()) +
                                  "\n----------------------\n"));
  for (const char* part : {"config: ", "STEP", "20 tokens in ", "PEAK RSS",
                           "stopped by the cap of 20 tokens (--gen)"}) {
    EXPECT_TRUE(has(result.out, part));
  }
  EXPECT_EQ(record().at("stop"), "cap");
}

TEST_F(TextProgram, QuietIsTheTextAlone) {
  const ProgramResult result = run({"--prompt", "Hello", "--gen", "20", "--quiet"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, tokenizer_.decode(generated()));
  const ProgramResult ids = run({"--ids", "3,4,5", "--gen", "3", "--quiet"});
  EXPECT_EQ(ids.out, test::joined(generated()) + "\n");
}

TEST_F(TextProgram, QuietTextThatCannotBeWrittenIsStatus1) {
  const ProgramResult result = test::run_program(
      {"/bin/sh", "-c",
       "exec '" K3_EXECUTABLE "' '" + demo() + "' --tok '" + bytes() +
           "' --prompt x --gen 2 --quiet --no-progress --out /dev/null >/dev/full"});
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(has(result.err, "standard output"));
}

TEST_F(TextProgram, AFileIsTakenByteForByte) {
  const std::string text("a\r\n\0 \xFF\xEF\xBB\xBF<|end_of_msg|>\n", 24);
  const fs::path file = dir_.path() / "prompt";
  std::ofstream(file, std::ios::binary) << text;
  ASSERT_EQ(run({"--prompt-file", file.string(), "--gen", "1"}).status, 0);
  EXPECT_EQ(record().at("prompt_ids").get<Ids>(), tokenizer_.encode(text));
  ASSERT_EQ(run({"--prompt-file", "-", "--gen", "1"}, text).status, 0);
  EXPECT_EQ(record().at("prompt_ids").get<Ids>(), tokenizer_.encode(text));
}

TEST_F(TextProgram, AnEmptyPromptSaysSo) {
  const fs::path file = dir_.path() / "prompt";
  std::ofstream(file).flush();
  for (const std::vector<std::string>& prompt : std::vector<std::vector<std::string>>{
           {"--prompt-file", file.string()}, {"--prompt-file", "-"}, {"--prompt", ""}}) {
    const ProgramResult result = run(prompt, "");
    EXPECT_EQ(result.status, 2);
    EXPECT_TRUE(has(result.err, "is empty"));
    EXPECT_EQ(result.out, "");
  }
}

TEST_F(TextProgram, APromptFileThatCannotBeReadIsNamed) {
  for (const std::string& path : {(dir_.path() / "nothing").string(), dir_.path().string()}) {
    const ProgramResult result = run({"--prompt-file", path});
    EXPECT_EQ(result.status, 2);
    EXPECT_TRUE(has(result.err, path));
  }
}

TEST_F(TextProgram, TheTokenizerIsLookedForAndNamedWhenItIsMissing) {
  const std::string missing = (dir_.path() / "tok").string();
  const ProgramResult chosen =
      test::run_program({K3_EXECUTABLE, demo(), "--tok", missing, "--prompt", "x"});
  EXPECT_EQ(chosen.status, 2);
  EXPECT_TRUE(has(chosen.err, missing + "/tiktoken.model"));
  const ProgramResult models = test::run_program(
      {"/usr/bin/env", "-u", "K3_TOK_FILES", K3_EXECUTABLE, demo(), "--prompt", "x"});
  EXPECT_EQ(models.status, 2);
  EXPECT_TRUE(has(models.err, demo() + "/tiktoken.model"));
  const ProgramResult environment =
      test::run_program({"/usr/bin/env", "K3_TOK_FILES=" + bytes(), K3_EXECUTABLE, demo(),
                         "--prompt", "x", "--gen", "1", "--quiet", "--out", out().string()});
  EXPECT_EQ(environment.status, 0) << environment.err;
}

TEST_F(TextProgram, ATokenizerOfAnotherModelIsRefused) {
  const ProgramResult result =
      test::run_program({K3_EXECUTABLE, demo(), "--tok", test::fixture("tokenizer").string(),
                         "--prompt", "x", "--out", out().string()});
  EXPECT_EQ(result.status, 2);
  EXPECT_TRUE(has(result.err, "512"));
  EXPECT_TRUE(has(result.err, "1024"));
  EXPECT_FALSE(fs::exists(out()));
}

TEST_F(TextProgram, IdsLoadNoTokenizer) {
  const ProgramResult result =
      test::run_program({K3_EXECUTABLE, demo(), "--ids", "1", "--gen", "1", "--tok",
                         (dir_.path() / "tok").string(), "--out", out().string()});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out.find("generated text"), std::string::npos);
}

TEST_F(TextProgram, PrintIdsNeedsNoModel) {
  const ProgramResult text =
      test::run_program({K3_EXECUTABLE, "--tok", bytes(), "--prompt", "Hi<|sep|>", "--print-ids"});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_EQ(text.out, test::joined(tokenizer_.encode("Hi<|sep|>")) + "\n");
  const ProgramResult ids = test::run_program({K3_EXECUTABLE, "--ids", "3,4", "--print-ids"});
  EXPECT_EQ(ids.out, "3,4\n");
  const ProgramResult none = test::run_program(
      {"/usr/bin/env", "-u", "K3_TOK_FILES", K3_EXECUTABLE, "--prompt", "x", "--print-ids"});
  EXPECT_EQ(none.status, 2);
  EXPECT_TRUE(has(none.err, "--tok"));
}

// Each stop that the greedy text holds, of one to five bytes at every place, ends it just before.
TEST_F(TextProgram, AStopTextCutsTheTextWhereverTokensEnd) {
  ASSERT_EQ(run({"--prompt", "Hello", "--gen", "12"}).status, 0);
  const std::string whole = tokenizer_.decode(generated());
  std::size_t stops = 0;
  for (std::size_t at = 1; at + 5 < whole.size() && stops < 12; at += 7) {
    const std::string stop = whole.substr(at, 1 + at % 5);
    if (stop.find('\0') != std::string::npos) {
      continue;  // no argument holds it
    }
    const ProgramResult result = run(
        {"--prompt", "Hello", "--gen", "12", "--quiet", "--stop", "no such text", "--stop", stop});
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.out, whole.substr(0, whole.find(stop)));
    EXPECT_EQ(record().at("stop"), "stop_text");
    ++stops;
  }
  EXPECT_GE(stops, 3U);
}

TEST_F(TextProgram, AStopIdEndsTheTextBeforeIt) {
  ASSERT_EQ(run({"--prompt", "Hello", "--gen", "6"}).status, 0);
  const Ids greedy = generated();
  const auto first = std::find(greedy.begin(), greedy.end(), greedy[3]);
  const ProgramResult result =
      run({"--prompt", "Hello", "--gen", "6", "--stop-id", std::to_string(greedy[3])});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(generated(), Ids(greedy.begin(), first + 1));
  EXPECT_TRUE(has(result.out, "--- generated text ---\n" +
                                  tokenizer_.decode(Ids(greedy.begin(), first)) +
                                  "\n----------------------\n"));
  EXPECT_TRUE(has(result.out, "stopped by id " + std::to_string(greedy[3]) + "\n"));
}

// Square brackets are not a list of CLI11's.
TEST_F(TextProgram, AStopMayLookLikeAList) {
  const ProgramResult result =
      run({"--prompt", "x", "--gen", "1", "--stop", "[EOS]", "--stop", "[a,b]"});
  EXPECT_EQ(result.status, 0) << result.err;
}

TEST_F(TextProgram, TheSameSeedDrawsTheSame) {
  const std::vector<std::string> base = {"--prompt", "Hello",         "--gen",
                                         "16",       "--temperature", "1.5"};
  const auto drawn = [&](std::vector<std::string> more) {
    more.insert(more.begin(), base.begin(), base.end());
    const ProgramResult result = run(more);
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_TRUE(has(result.out, "sampling: temperature 1.5, top-p "));
    return generated();
  };
  const Ids first = drawn({"--seed", "7"});
  EXPECT_EQ(drawn({"--seed", "7", "--full-recompute"}), first);
  EXPECT_EQ(drawn({"--seed", "7", "--top-p", "1"}), first);
  EXPECT_NE(drawn({"--seed", "8"}), first);
  const Ids random = drawn({});
  EXPECT_EQ(drawn({"--seed", std::to_string(record().at("seed").get<std::uint64_t>())}), random);
}

TEST_F(TextProgram, EveryInstructionSetDrawsTheSame) {
  Ids expected;
  for (const kernels::KernelTable* table : kernels::supported_tables()) {
    std::vector<std::string> argv = command({"--prompt", "Hello", "--gen", "16", "--temperature",
                                             "1.5", "--top-p", "0.9", "--seed", "7"});
    argv.insert(argv.begin(), {"/usr/bin/env", std::string("K3_ISA=") + table->name});
    ASSERT_EQ(test::run_program(argv).status, 0);
    expected = expected.empty() ? generated() : expected;
    EXPECT_EQ(generated(), expected) << table->name;
  }
}

TEST_F(TextProgram, TemperatureZeroIsGreedy) {
  ASSERT_EQ(run({"--prompt", "Hello"}).status, 0);
  const Ids greedy = generated();
  ASSERT_EQ(run({"--prompt", "Hello", "--temperature", "0"}).status, 0);
  EXPECT_EQ(generated(), greedy);
  EXPECT_FALSE(record().contains("seed"));
}

TEST_F(TextProgram, UsageErrorsAreStatus2WithTheReason) {
  struct Bad {
    std::vector<std::string> arguments;
    std::string reason;
  };

  const std::vector<Bad> cases = {
      {{}, "exactly one"},
      {{"--prompt", "x", "--ids", "1"}, "exactly one"},
      {{"--prompt", "x", "--prompt-file", "y"}, "exactly one"},
      {{"--chat", "--prompt", "x"}, "exactly one"},
      {{"--prompt", "x", "--system", "y"}, "--system is for --chat"},
      {{"--ids", "1", "--thinking", "off"}, "--thinking is for --chat"},
      {{"--chat", "--thinking", "medium"}, "\"medium\""},
      {{"--chat", "--tf-check"}, "--tf-check"},
      {{"--prompt", "xy", "--tf-check"}, "--tf-check"},
      {{"--chat", "--dump-logits", "x"}, "--dump-logits"},
      {{"--prompt", "x", "--temperature", "nan"}, "temperature"},
      {{"--prompt", "x", "--temperature", "inf"}, "temperature"},
      {{"--prompt", "x", "--temperature", "-1"}, "temperature"},
      {{"--prompt", "x", "--temperature", "hot"}, "\"hot\""},
      {{"--prompt", "x", "--temperature", "1x"}, "\"1x\""},
      {{"--prompt", "x", "--top-p", "0"}, "top-p"},
      {{"--prompt", "x", "--top-p", "1.5"}, "top-p"},
      {{"--prompt", "x", "--top-p", "nan"}, "top-p"},
      {{"--prompt", "x", "--temperature", "0", "--top-p", "0.9"}, "contradict"},
      {{"--prompt", "x", "--seed", "1"}, "--seed"},
      {{"--prompt", "x", "--temperature", "1", "--seed", "-1"}, "\"-1\""},
      {{"--prompt", "x", "--temperature", "1", "--seed", "18446744073709551616"}, "2^64"},
      {{"--prompt", "x", "--stop-id", "x"}, "\"x\""},
      {{"--prompt", "x", "--stop-id", "-2"}, "\"-2\""},
      {{"--prompt", "x", "--stop-id", "512"}, "--stop-id, entry 1"},
      {{"--prompt", "x", "--stop", ""}, "--stop"},
      {{"--ids", "1", "--stop", "x"}, "--stop"},
  };
  for (const Bad& bad : cases) {
    const ProgramResult result = run(bad.arguments);
    EXPECT_EQ(result.status, 2) << bad.reason << result.out;
    EXPECT_TRUE(has(result.err, bad.reason));
    EXPECT_FALSE(fs::exists(out())) << bad.reason;
  }
  const ProgramResult missing = test::run_program({K3_EXECUTABLE, "--ids", "1"});
  EXPECT_EQ(missing.status, 2);
  EXPECT_TRUE(has(missing.err, "model_dir"));
}

TEST_F(TextProgram, ProgressIsPlainLinesWhereThereIsNoTerminal) {
  const ProgramResult result =
      run({"--prompt", std::string(100, 'a'), "--gen", "1", "--chunk", "64", "--quiet"});
  EXPECT_TRUE(has(result.err, "k3: reading the prompt: layer 13/13 of chunk 2/2, 100%"));
  EXPECT_EQ(result.err.find_first_of("\r\x1B"), std::string::npos);
  EXPECT_EQ(run({"--prompt", "x", "--gen", "1", "--no-progress"}).err, "");
}

TEST_F(TextProgram, ProgressIsABarOnATerminalAndIsWipedOffBeforeTheText) {
  const ProgramResult result =
      test::run_on_terminal({K3_EXECUTABLE, demo(), "--tok", bytes(), "--prompt", "Hello", "--gen",
                             "4", "--quiet", "--out", out().string()},
                            {});
  ASSERT_EQ(result.status, 0) << result.out;
  EXPECT_TRUE(has(result.out, "\rreading the prompt ["));
  EXPECT_TRUE(has(result.out, "layer "));
  EXPECT_TRUE(has(result.out, "ETA "));
  const std::size_t wiped = result.out.rfind("\r\x1B[K");
  ASSERT_NE(wiped, std::string::npos);
  std::string text = result.out.substr(wiped + 4);
  text.erase(std::remove(text.begin(), text.end(), '\r'), text.end());  // the terminal's line ends
  std::string expected = tokenizer_.decode(generated());
  expected.erase(std::remove(expected.begin(), expected.end(), '\r'), expected.end());
  EXPECT_EQ(text, expected + (expected.ends_with('\n') ? "" : "\n"));
  const ProgramResult none =
      test::run_on_terminal({K3_EXECUTABLE, demo(), "--tok", bytes(), "--prompt", "Hello", "--gen",
                             "4", "--quiet", "--no-progress", "--out", out().string()},
                            {});
  EXPECT_EQ(none.out.find('\x1B'), std::string::npos);
}

TEST_F(TextProgram, AnInterruptPrintsWhatThereIs) {
  const ProgramResult result =
      test::run_program({K3_EXECUTABLE, demo(), "--tok", bytes(), "--prompt", "Hello", "--gen",
                         "100000", "--out", out().string()},
                        "--- generated text ---\n");
  EXPECT_EQ(result.status, 130);
  EXPECT_TRUE(has(result.out, "\n----------------------\n"));
  EXPECT_TRUE(has(result.out, "stopped by Ctrl-C"));
  EXPECT_EQ(record().at("stop"), "interrupted");
}

}  // namespace
}  // namespace k3

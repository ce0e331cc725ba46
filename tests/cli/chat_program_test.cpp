// Chats through the program: turns, the kept state, history, commands, a terminal.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "k3/chat.h"
#include "k3/engine.h"
#include "k3/generate.h"

#include "cli/text_program.h"
#include "support/chat_cases.h"

namespace k3 {
namespace {

namespace fs = std::filesystem;
using test::has;
using test::Ids;
using test::ProgramResult;

struct TurnIds {
  Ids fresh;
  Ids generated;
  Ids completion;
  std::size_t tokens_run = 0;
};

class ChatProgram : public test::TextProgramTest {
 protected:
  [[nodiscard]] ProgramResult chat(std::vector<std::string> arguments,
                                   const std::string& input) const {
    arguments.insert(arguments.begin(), "--chat");
    return run(arguments, input);
  }

  [[nodiscard]] std::vector<TurnIds> turns() const {
    std::vector<TurnIds> all;
    const nlohmann::json json = record();
    for (const nlohmann::json& turn : json.at("turns")) {
      all.push_back({turn.at("new_ids").get<Ids>(), turn.at("generated_ids").get<Ids>(),
                     turn.at("completion_ids").get<Ids>(),
                     turn.at("tokens_run").get<std::size_t>()});
    }
    return all;
  }

  [[nodiscard]] fs::path history() const { return dir_.path() / "talk.jsonl"; }

  [[nodiscard]] std::string history_text() const { return test::read_bytes(history()); }

  [[nodiscard]] ChatHistory talk() const {
    return read_chat_history({.text = history_text(), .name = "talk"});
  }

  void write_history(const std::string& text) const {
    std::ofstream(history(), std::ios::binary) << text;
  }

  [[nodiscard]] Ids rendered(const std::vector<ChatMessage>& messages, Thinking thinking) const {
    return ChatEncoder(tokenizer_).encode(messages, {.thinking = thinking});
  }

  // Each turn again in a run of its own over the ids so far.
  void expect_turns_of_cold_runs(const std::vector<TurnIds>& all) const {
    Engine engine({.model_dir = demo(), .threads = 1});
    Ids ids;
    for (const TurnIds& turn : all) {
      ids.insert(ids.end(), turn.fresh.begin(), turn.fresh.end());
      EXPECT_EQ(generate(engine, ids, {.max_new_tokens = turn.generated.size()}).generated,
                turn.generated);
      ids.insert(ids.end(), turn.generated.begin(), turn.generated.end());
      if (turn.generated.back() == *tokenizer_.special("[EOS]")) {
        ids.pop_back();
      }
      ids.insert(ids.end(), turn.completion.begin(), turn.completion.end());
    }
  }
};

TEST_F(ChatProgram, EveryTurnIsThatOfAColdRunAndRunsNewIdsAlone) {
  for (const char* mode : {"--incremental", "--full-recompute"}) {
    const ProgramResult result =
        chat({"--gen", "7", "--thinking", "low", "--system", "Be brief.", mode},
             "one\ntwo <|end_of_msg|>\nthree 你\n");
    ASSERT_EQ(result.status, 0) << result.err;
    const std::vector<TurnIds> all = turns();
    ASSERT_EQ(all.size(), 3U);
    EXPECT_EQ(all[0].fresh, rendered({text_message(ChatRole::kSystem, "Be brief."),
                                      text_message(ChatRole::kUser, "one")},
                                     Thinking::kLow));
    expect_turns_of_cold_runs(all);
    if (mode == std::string("--full-recompute")) {
      continue;
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
      // The last id of a turn, and what completes it, run with the next.
      const std::size_t before = i == 0 ? 0 : 1 + all[i - 1].completion.size();
      EXPECT_EQ(all[i].tokens_run, before + all[i].fresh.size() + all[i].generated.size() - 1);
    }
  }
}

TEST_F(ChatProgram, ThinkingAndAnswerAreShownApartAndMarkersNever) {
  ASSERT_EQ(chat({"--gen", "30", "--thinking", "off", "--temperature", "1"}, "Hello\n").status, 0);
  const ProgramResult off =
      chat({"--gen", "30", "--thinking", "off", "--temperature", "1", "--seed", "3"}, "Hello\n");
  EXPECT_TRUE(has(off.out, "--- answer ---\n"));
  EXPECT_EQ(off.out.find("--- thinking ---"), std::string::npos);
  const ProgramResult on = chat({"--gen", "30", "--temperature", "1", "--seed", "3"}, "Hello\n");
  EXPECT_TRUE(has(on.out, "--- thinking ---\n"));
  for (const ProgramResult& result : {off, on}) {
    EXPECT_EQ(result.out.find("<|"), std::string::npos);
  }
}

TEST_F(ChatProgram, QuietIsTheAnswersAlone) {
  const ProgramResult result = chat(
      {"--gen", "6", "--thinking", "off", "--quiet", "--history", history().string()}, "a\nb\n");
  ASSERT_EQ(result.status, 0) << result.err;
  Ids first = turns()[0].generated;
  Ids second = turns()[1].generated;
  std::string expected;
  for (const Ids& ids : {first, second}) {
    for (const std::int32_t id : ids) {
      expected += tokenizer_.is_special(id) ? "" : tokenizer_.decode(id);
    }
    expected += "\n";
  }
  EXPECT_EQ(result.out, expected);
}

// Draws until an end id comes: with 512 ids that are nearly as likely it does within some hundreds.
TEST_F(ChatProgram, EndsOnEveryEndId) {
  std::vector<bool> seen(2);
  for (int seed = 0; seed < 40 && !(seen[0] && seen[1]); ++seed) {
    const ProgramResult result = chat({"--gen", "4000", "--temperature", "50", "--thinking", "off",
                                       "--quiet", "--seed", std::to_string(seed)},
                                      "Hello\n");
    ASSERT_EQ(result.status, 0) << result.err;
    ASSERT_EQ(record().at("stop"), "stop_id");
    const TurnIds turn = turns().front();
    const auto ends = tokenizer_.end_ids();
    const auto end = std::find(ends.begin(), ends.end(), turn.generated.back());
    ASSERT_NE(end, ends.end());
    EXPECT_EQ(std::find_first_of(turn.generated.begin(), turn.generated.end() - 1, ends.begin(),
                                 ends.end()),
              turn.generated.end() - 1);
    const bool end_of_message = *end == *tokenizer_.special("<|end_of_msg|>");
    EXPECT_EQ(turn.completion.empty(), end_of_message);
    seen[static_cast<std::size_t>(end - ends.begin())] = true;
  }
  EXPECT_TRUE(seen[0] && seen[1]);
}

TEST_F(ChatProgram, ACapAtEveryPositionIsCompletedAndGoesOn) {
  for (int cap = 1; cap <= 6; ++cap) {
    ASSERT_EQ(chat({"--gen", std::to_string(cap), "--thinking", "off"}, "a\nb\n").status, 0);
    const std::vector<TurnIds> all = turns();
    ASSERT_EQ(all.size(), 2U);
    EXPECT_EQ(all[0].generated.size(), static_cast<std::size_t>(cap));
    EXPECT_EQ(all[0].completion.back(), *tokenizer_.special("<|end_of_msg|>"));
    expect_turns_of_cold_runs(all);
  }
}

TEST_F(ChatProgram, ATurnEndsWithTheContextAndTheNextFindsNoRoom) {
  const std::size_t first = rendered({text_message(ChatRole::kUser, "one")}, Thinking::kOff).size();
  const std::string context = std::to_string(first + 5);
  const ProgramResult result =
      chat({"--thinking", "off", "--context", context, "--temperature", "1", "--seed", "2"},
           "one\ntwo\n/reset\none\n");
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(has(result.out, "stopped by the end of the context (--context)")) << result.out;
  EXPECT_TRUE(has(result.err, "no room for this turn: the chat would reach ")) << result.err;
  EXPECT_TRUE(has(result.err, " of " + context + " tokens (--context)")) << result.err;
  const std::vector<TurnIds> all = turns();
  ASSERT_EQ(all.size(), 2U);  // before and after /reset
  EXPECT_EQ(all[0].generated.size(), 5U);
  EXPECT_EQ(all[0].fresh, all[1].fresh);
  EXPECT_EQ(all[0].generated, all[1].generated);
}

TEST_F(ChatProgram, AContextThatMakesNoSenseIsStatus2) {
  EXPECT_TRUE(has(chat({"--context", "3"}, "").err, "--context: the history fills the context"));
  for (const char* context : {"3", "0", "-1", "x", ""}) {
    EXPECT_EQ(chat({"--context", context}, "").status, 2) << context;
  }
  EXPECT_TRUE(has(run({"--prompt", "a", "--context", "9"}).err, "--context is for --chat"));
}

TEST_F(ChatProgram, HistoryGrowsWithEachTurnAndARestartEncodesIt) {
  const std::vector<std::string> arguments = {"--gen", "5", "--history", history().string()};
  ASSERT_EQ(chat(arguments, "one\n").status, 0);
  ASSERT_EQ(talk().messages.size(), 2U);
  EXPECT_EQ(talk().messages[0], text_message(ChatRole::kUser, "one"));
  const std::string before = history_text();
  ASSERT_EQ(chat(arguments, "two\nthree\n").status, 0);
  EXPECT_TRUE(history_text().starts_with(before));
  std::vector<ChatMessage> messages = talk().messages;
  ASSERT_EQ(messages.size(), 6U);
  messages.resize(3);
  EXPECT_EQ(turns()[0].fresh, rendered(messages, Thinking::kMax));
  expect_turns_of_cold_runs(turns());
}

TEST_F(ChatProgram, AHistoryWithoutItsLastLineEndIsContinued) {
  write_history(R"({"role":"user","content":"a"})"
                "\n"
                R"({"role":"assistant","content":"b"})");
  ASSERT_EQ(chat({"--gen", "2", "--history", history().string()}, "c\n").status, 0);
  EXPECT_EQ(talk().messages.size(), 4U);
}

TEST_F(ChatProgram, AHistoryThatWaitsForAnAnswerGetsIt) {
  write_history(R"({"role":"user","content":"a"})"
                "\n");
  ASSERT_EQ(chat({"--gen", "2", "--history", history().string()}, "").status, 0);
  EXPECT_EQ(turns().size(), 1U);
  ASSERT_EQ(talk().messages.size(), 2U);
  EXPECT_EQ(talk().messages[1].role, ChatRole::kAssistant);
}

TEST_F(ChatProgram, AMalformedHistoryIsStatus2WithItsLineAndStaysAsItIs) {
  const std::string text = R"({"role":"user","content":"a"})"
                           "\n"
                           R"({"role":"user","content":)"
                           "\n";
  write_history(text);
  const ProgramResult result = chat({"--history", history().string()}, "x\n");
  EXPECT_EQ(result.status, 2);
  EXPECT_TRUE(has(result.err, history().string() + ", line 2"));
  EXPECT_EQ(history_text(), text);
}

TEST_F(ChatProgram, AHistoryThatCannotBeReadOrWrittenIsStatus2BeforeAnyTurn) {
  for (const std::string& path : {dir_.path().string(), std::string("/no/such/folder/h.jsonl")}) {
    const ProgramResult result = chat({"--history", path}, "x\n");
    EXPECT_EQ(result.status, 2);
    EXPECT_TRUE(has(result.err, path));
    EXPECT_EQ(result.out.find("---"), std::string::npos);
  }
}

TEST_F(ChatProgram, TheSystemMessageIsKeptInAHistory) {
  const std::vector<std::string> arguments = {"--gen", "2", "--history", history().string()};
  std::vector<std::string> with_system = arguments;
  with_system.insert(with_system.end(), {"--system", "Be brief."});
  ASSERT_EQ(chat(with_system, "a\n").status, 0);
  ASSERT_EQ(talk().messages.size(), 3U);
  EXPECT_EQ(talk().messages[0], text_message(ChatRole::kSystem, "Be brief."));
  ASSERT_EQ(chat(with_system, "b\n").status, 0);  // the same again is no other
  EXPECT_EQ(talk().messages.size(), 5U);
  with_system.back() = "Be long.";
  const ProgramResult other = chat(with_system, "c\n");
  EXPECT_EQ(other.status, 2);
  EXPECT_TRUE(has(other.err, "--system"));
  write_history(R"({"role":"user","content":"a"})"
                "\n");
  with_system.insert(with_system.end(), {"--print-ids", "--thinking", "off"});
  EXPECT_EQ(chat(with_system, "").out,
            test::joined(rendered(
                {text_message(ChatRole::kSystem, "Be long."), text_message(ChatRole::kUser, "a")},
                Thinking::kOff)) +
                "\n");
}

TEST_F(ChatProgram, ResetBeginsAgainAndSaveWritesTheConversation) {
  const fs::path saved = dir_.path() / "saved.jsonl";
  const ProgramResult result =
      chat({"--gen", "3", "--system", "S", "--history", history().string()},
           "one\n/save " + saved.string() + "\n/reset\n\ntwo\n/save\n/exit\nnever\n");
  ASSERT_EQ(result.status, 0) << result.err;
  ASSERT_EQ(turns().size(), 2U);
  EXPECT_EQ(turns()[1].fresh,
            rendered({text_message(ChatRole::kSystem, "S"), text_message(ChatRole::kUser, "two")},
                     Thinking::kMax));
  EXPECT_TRUE(has(result.err, "saved to " + saved.string()));
  EXPECT_TRUE(has(result.err, "saved to " + history().string()));
  const std::string copy = test::read_bytes(saved);
  EXPECT_EQ(read_chat_history({.text = copy, .name = "saved"}).messages.size(), 3U);
  EXPECT_TRUE(has(history_text(), "\"one\""));  // what was before the reset stays in the file
  EXPECT_EQ(talk().messages.size(), 3U);
  EXPECT_EQ(talk().messages[1], text_message(ChatRole::kUser, "two"));
}

TEST_F(ChatProgram, AFailedSaveIsToldAndTheChatGoesOn) {
  const ProgramResult result =
      chat({"--gen", "2"}, "/save\n/save /no/such/folder/x\n/save\nHello\n");
  EXPECT_EQ(result.status, 0);
  EXPECT_TRUE(has(result.err, "/save FILE"));
  EXPECT_TRUE(has(result.err, "not saved: /no/such/folder/x"));
  EXPECT_EQ(turns().size(), 1U);
}

TEST_F(ChatProgram, AStopTextEndsATurn) {
  ASSERT_EQ(chat({"--gen", "8", "--thinking", "off"}, "Hello\n").status, 0);
  std::string whole;
  for (const std::int32_t id : generated()) {
    whole += tokenizer_.is_special(id) ? "" : tokenizer_.decode(id);
  }
  const std::string stop = whole.substr(2, 2);
  const ProgramResult result =
      chat({"--gen", "8", "--thinking", "off", "--quiet", "--stop", stop}, "Hello\n");
  EXPECT_EQ(result.out, whole.substr(0, whole.find(stop)) + "\n");
  EXPECT_EQ(record().at("stop"), "stop_text");
}

// Every rendering through the command line, those of others with the released vocabulary.
void expect_renderings(const std::vector<test::ChatCase>& cases,
                       const std::string& vocabulary,
                       const fs::path& history) {
  std::size_t compared = 0;
  for (const test::ChatCase& one : cases) {
    if (!one.chat.options.generation_prefix || one.chat.messages.empty()) {
      continue;  // the program always asks for an answer, and to something
    }
    std::ofstream(history, std::ios::binary) << one.lines;
    const ProgramResult result = test::run_with_input(
        {K3_EXECUTABLE, "--tok", vocabulary, "--chat", "--history", history.string(), "--thinking",
         std::string(thinking_name(one.chat.options.thinking)), "--print-ids"},
        "");
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.out, test::joined(one.ids) + "\n") << one.name;
    ++compared;
  }
  EXPECT_GE(compared, cases.size() - 2);
}

TEST_F(ChatProgram, PrintIdsRendersTheFixtures) {
  expect_renderings(test::chat_fixtures(), test::fixture("tokenizer").string(), history());
}

TEST_F(ChatProgram, PrintIdsRendersTheGoldens) {
  const auto goldens = test::shared("peer/tokenizer/chat_goldens.json");
  const auto vocabulary = test::released_tokenizer_directory();
  if (goldens.empty() || vocabulary.empty()) {
    GTEST_SKIP() << test::missing_shared("peer/tokenizer");
  }
  expect_renderings(test::chat_goldens(goldens), vocabulary.string(), history());
}

TEST_F(ChatProgram, PrintIdsTakesATurnFromStandardInput) {
  const ProgramResult result = chat({"--thinking", "off", "--print-ids"}, "Hello\n");
  EXPECT_EQ(
      result.out,
      test::joined(rendered({text_message(ChatRole::kUser, "Hello")}, Thinking::kOff)) + "\n");
  const ProgramResult nothing = chat({"--print-ids"}, "");
  EXPECT_EQ(nothing.status, 2);
  EXPECT_TRUE(has(nothing.err, "empty"));
}

TEST_F(ChatProgram, AnInterruptKeepsTheHistoryWhole) {
  write_history(R"({"role":"user","content":"a"})"
                "\n");
  const std::string before = history_text();
  const ProgramResult result = test::run_program(
      command({"--chat", "--thinking", "off", "--gen", "1000000", "--history", history().string()}),
      "--- answer ---\n");
  EXPECT_EQ(result.status, 130);
  EXPECT_TRUE(has(result.out, "stopped by Ctrl-C"));
  EXPECT_TRUE(record().at("interrupted").get<bool>());
  EXPECT_EQ(history_text(), before);
}

TEST_F(ChatProgram, OnATerminalLinesAreEditedAndThreeTurnsWork) {
  const ProgramResult result = test::run_on_terminal(
      command({"--chat", "--gen", "3", "--thinking", "off", "--history", history().string()}),
      {{"> ",
        "onx\x7F"
        "e\n"},  // backspace
       {"stopped by", ""},
       {"> ", "你好吗\x7F!\n"},  // a character of three bytes
       {"stopped by", ""},
       {"> ", "\x1B[A\x1B[A\x01<\n"},  // up, up, to the beginning: "<one"
       {"stopped by", ""},
       {"> ", "/exit\n"}});
  EXPECT_EQ(result.status, 0) << result.out;
  ASSERT_EQ(talk().messages.size(), 6U) << result.out;
  EXPECT_EQ(talk().messages[0].content[0].text, "one");
  EXPECT_EQ(talk().messages[2].content[0].text, "你好!");
  EXPECT_EQ(talk().messages[4].content[0].text, "<one");
}

TEST_F(ChatProgram, OnATerminalTheEndOfInputIsStatus0AndCtrlCIs130) {
  const std::vector<std::string> argv = command({"--chat", "--gen", "2"});
  const ProgramResult end = test::run_on_terminal(argv, {{"> ", "\x04"}});
  EXPECT_EQ(end.status, 0) << end.out;
  const ProgramResult interrupt = test::run_on_terminal(argv, {{"> ", "x\x03"}});
  EXPECT_EQ(interrupt.status, 130) << interrupt.out;
}

}  // namespace
}  // namespace k3

// Messages as lines of JSON.

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "k3/chat.h"

#include "support/chat_cases.h"
#include "support/expect_error.h"

namespace k3 {
namespace {

using test::throws;

ChatHistory read(const std::string& text) {
  return read_chat_history({.text = text, .name = "talk.jsonl"});
}

TEST(ChatHistory, WrittenMessagesAreReadBack) {
  std::size_t messages = 0;
  for (const test::ChatCase& one : test::chat_fixtures()) {
    std::string lines;
    for (const ChatMessage& message : one.chat.messages) {
      const std::string line = write_chat_message(message);
      EXPECT_EQ(line.find('\n'), std::string::npos);
      lines += line + "\n";
      ++messages;
    }
    EXPECT_EQ(read(lines).messages, one.chat.messages) << one.name;
  }
  EXPECT_GT(messages, 20U);
}

TEST(ChatHistory, LinesAreWhatOthersRead) {
  EXPECT_EQ(write_chat_message(text_message(ChatRole::kUser, "a \"b\"\nc\xFF")),
            R"({"role":"user","content":"a \"b\"\nc)"
            "\uFFFD\"}");
  EXPECT_EQ(write_chat_message(
                {.role = ChatRole::kAssistant, .content = {{.text = "hi"}}, .reasoning = "hm"}),
            R"({"role":"assistant","reasoning_content":"hm","content":"hi"})");
}

TEST(ChatHistory, AResetBeginsANewConversation) {
  const std::string line = write_chat_message(text_message(ChatRole::kUser, "a")) + "\n";
  const std::string options = R"({"options":{"tool_choice":"none"}})"
                              "\n";
  const std::string reset = std::string(kHistoryReset) + "\n";
  EXPECT_EQ(read(line + line).messages.size(), 2U);
  EXPECT_EQ(read(options + line + reset + line).messages.size(), 1U);
  EXPECT_EQ(read(options + line + reset + line).options, ChatOptions());
  EXPECT_EQ(read(line + reset + options + line).options.tool_choice, ToolChoice::kNone);
  EXPECT_TRUE(read(line + reset).messages.empty());
  EXPECT_TRUE(read("").messages.empty());
}

TEST(ChatHistory, ALastLineWithoutItsEndCounts) {
  EXPECT_EQ(read(write_chat_message(text_message(ChatRole::kUser, "a"))).messages.size(), 1U);
}

TEST(ChatHistory, WhatIsMalformedIsRefusedWithFileAndLine) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "not valid JSON"},
      {"x", "not valid JSON"},
      {R"({"role":"user","content":"a)", "not valid JSON"},
      {R"({"role":"user","content":"a"} {})", "not valid JSON"},
      {R"({"role":"user","content":"a","content":"b"})", "twice"},
      {"\"text\"", "an object"},
      {"[]", "an object"},
      {"{}", "role"},
      {R"({"role":1,"content":"a"})", "role"},
      {R"({"role":"human","content":"a"})", "\"human\""},
      {R"({"role":"user"})", "content"},
      {R"({"role":"user","content":null})", "content"},
      {R"({"role":"user","content":3})", "a number"},
      {R"({"role":"user","content":"a","extra":1})", "\"extra\""},
      {R"({"role":"user","content":"a","reasoning_content":"b"})", "\"reasoning_content\""},
      {R"({"role":"user","content":[{"type":"audio"}]})", "\"audio\""},
      {R"({"role":"user","content":["a"]})", "an object"},
      {R"({"role":"assistant"})", "content"},
      {R"({"role":"assistant","content":"a","tool_calls":[{"id":"c"}]})", "function"},
      {R"({"role":"assistant","content":"a","tool_calls":[{"function":{"name":"f"}}]})", "id"},
      {R"({"role":"assistant","tool_calls":[{"id":"c","function":{"name":"f","arguments":3}}]})",
       "arguments"},
      {R"({"role":"tool","content":"a"})", "tool_call_id"},
      {R"({"role":"tool","content":"a","tool_call_id":"c7"})", "\"c7\""},
      {R"({"role":"system","content":"a","tools":[]})", "both"},
      {R"({"role":"system","tools":{}})", "tools"},
      {R"({"reset":false})", "reset"},
      {R"({"reset":true,"role":"user"})", "\"role\""},
      {R"({"options":{}})", "before the first message"},
  };
  const std::string before = write_chat_message(text_message(ChatRole::kUser, "a")) + "\n";
  for (const auto& [line, part] : cases) {
    std::string text = before;
    text.append(line).append("\n").append(before);
    EXPECT_TRUE(
        throws(ErrorKind::kUserFile, {"talk.jsonl, line 2", part}, [&text] { (void)read(text); }));
  }
  const std::vector<std::pair<std::string, std::string>> options = {
      {R"({"options":[]})", "an array"},
      {R"({"options":{"tools":"[]"}})", "tools"},
      {R"({"options":{"tool_choice":"perhaps"}})", "\"perhaps\""},
      {R"({"options":{"response_format":{"type":"xml"}}})", "\"xml\""},
      {R"({"options":{"response_format":{"type":"json_schema"}}})", "json_schema"},
      {R"({"options":{"image_prompts":[1]}})", "image_prompts"},
      {R"({"options":{"thinking":true}})", "\"thinking\""},
  };
  for (const auto& [line, part] : options) {
    const std::string& text = line;
    EXPECT_TRUE(
        throws(ErrorKind::kUserFile, {"talk.jsonl, line 1", part}, [&text] { (void)read(text); }));
  }
}

}  // namespace
}  // namespace k3

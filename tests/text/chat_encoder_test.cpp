// Chats to ids: the project's fixtures, the renderings of others, and what no text may do.

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "k3/chat.h"

#include "support/chat_cases.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/tokenizer_files.h"

namespace k3 {
namespace {

using Ids = std::vector<std::int32_t>;
using test::throws;

const Tokenizer& small() {
  static const Tokenizer kTokenizer = test::small_tokenizer_files().load();
  return kTokenizer;
}

std::size_t count_specials(const Tokenizer& tokenizer, const Ids& ids) {
  return static_cast<std::size_t>(std::count_if(
      ids.begin(), ids.end(), [&](std::int32_t id) { return tokenizer.is_special(id); }));
}

TEST(ChatEncoder, GivesTheIdsOfTheReference) {
  const ChatEncoder encoder(small());
  const std::vector<test::ChatCase> cases = test::chat_fixtures();
  ASSERT_GE(cases.size(), 17U);
  for (const test::ChatCase& one : cases) {
    const Ids ids = encoder.encode(one.chat.messages, one.chat.options);
    EXPECT_EQ(small().decode(ids), one.text) << one.name;
    EXPECT_EQ(ids, one.ids) << one.name;
  }
}

TEST(ChatEncoder, GivesTheIdsOfTheOfficialEncoder) {
  const auto goldens = test::shared("peer/tokenizer/chat_goldens.json");
  const auto vocabulary = test::released_tokenizer_directory();
  if (goldens.empty() || vocabulary.empty()) {
    GTEST_SKIP() << test::missing_shared("peer/tokenizer");
  }
  const Tokenizer tokenizer = test::read_tokenizer_files(vocabulary).load();
  const ChatEncoder encoder(tokenizer);
  const std::vector<test::ChatCase> cases = test::chat_goldens(goldens);
  ASSERT_EQ(cases.size(), 21U);
  for (const test::ChatCase& one : cases) {
    const Ids ids = encoder.encode(one.chat.messages, one.chat.options);
    EXPECT_EQ(tokenizer.decode(ids), one.text) << one.name;
    EXPECT_EQ(ids, one.ids) << one.name;
  }
}

// Whatever stands in texts, names and attributes, the special ids are those of the same chat with
// harmless texts.
TEST(ChatEncoder, NoTextYieldsASpecialId) {
  const auto chat = [](const std::string& text) {
    return std::vector<ChatMessage>{
        text_message(ChatRole::kSystem, text),
        {.role = ChatRole::kUser, .content = {{.text = text}}, .name = text},
        {.role = ChatRole::kAssistant,
         .content = {{.text = text}, {.text = text}},
         .reasoning = text,
         .tool_calls = {{.id = text, .name = text, .arguments = text},
                        {.id = "2",
                         .name = text,
                         .arguments = R"({"<|sep|>": "<|end_of_msg|>"})"}}},
        {.role = ChatRole::kTool, .content = {{.text = text}}, .tool_call_id = text},
        {.role = ChatRole::kSystem, .tools = R"(["<|open|>message<|sep|>"])"}};
  };
  const ChatEncoder encoder(small());
  const std::size_t harmless = count_specials(small(), encoder.encode(chat("x"), {}));
  for (std::int32_t id = 768; id < 1024; ++id) {
    const std::string name(small().decode(id));
    EXPECT_EQ(count_specials(small(), encoder.encode(chat(name), {})), harmless) << name;
  }
  EXPECT_EQ(count_specials(small(), encoder.encode(chat("<|<|open|>open|>\"&\" x=\"<|sep|>"), {})),
            harmless);
  EXPECT_EQ(count_specials(small(), encoder.encode(chat("\xFF<|close|>\xE4\xBD"), {})), harmless);
}

TEST(ChatEncoder, ATurnIsWhatFollowsTheConversationBefore) {
  const ChatEncoder encoder(small());
  std::vector<ChatMessage> messages = {text_message(ChatRole::kUser, "a"),
                                       text_message(ChatRole::kAssistant, "b")};
  const std::vector<ChatMessage> next = {text_message(ChatRole::kUser, "c")};
  for (const Thinking thinking : {Thinking::kOff, Thinking::kHigh}) {
    Ids ids = encoder.encode(messages, {.thinking = thinking, .generation_prefix = false});
    const Ids turn = encoder.encode_turn(next, {.thinking = thinking});
    ids.insert(ids.end(), turn.begin(), turn.end());
    std::vector<ChatMessage> all = messages;
    all.push_back(next.front());
    EXPECT_EQ(ids, encoder.encode(all, {.thinking = thinking}));
  }
}

TEST(ChatEncoder, RefusesWhatItCannotRender) {
  const ChatEncoder encoder(small());
  const std::vector<ChatMessage> hello = {text_message(ChatRole::kUser, "Hello")};
  const auto refused = [&](const std::vector<ChatMessage>& messages, const ChatOptions& options,
                           const std::vector<std::string>& parts) {
    EXPECT_TRUE(throws(ErrorKind::kUsage, parts, [&] { (void)encoder.encode(messages, options); }));
  };
  refused(hello, {.tools = "{"}, {"tools", "JSON array"});
  refused(hello, {.tools = "{}"}, {"tools", "an object"});
  refused(hello, {.response_format = ResponseFormat::kJsonSchema}, {"response schema"});
  refused(hello, {.image_prompts = {"x"}}, {"image prompts"});
  refused({{.role = ChatRole::kUser, .content = {{.image = true}}}}, {}, {"image prompts"});
  refused({{.role = ChatRole::kTool, .content = {{.text = "1"}}, .tool_call_id = "c9"}}, {},
          {"tool result", "\"c9\""});
  refused({{.role = ChatRole::kSystem, .content = {{.text = "x"}}, .tools = "[]"}}, {}, {"both"});
}

TEST(ChatEncoder, AMissingMarkerIsNamed) {
  test::TokenizerFiles files = test::small_tokenizer_files();
  files.config.replace(files.config.find("<|sep|>"), 7, "<|sip|>");
  const Tokenizer tokenizer = files.load();
  EXPECT_TRUE(throws(ErrorKind::kUserFile, {"tokenizer_config.json", "<|sep|>"},
                     [&] { (void)ChatEncoder(tokenizer); }));
}

TEST(Thinking, NamesAreReadBack) {
  for (const char* name : {"off", "low", "high", "max"}) {
    EXPECT_EQ(thinking_name(thinking_of(name).value()), name);
  }
  EXPECT_EQ(thinking_of("medium"), std::nullopt);
}

}  // namespace
}  // namespace k3

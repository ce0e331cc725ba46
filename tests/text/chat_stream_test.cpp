// The assistant's message as it comes, id by id: channels, markers, and what a cut leaves to complete.

#include "k3/chat_stream.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/tokenizer_files.h"

namespace k3 {
namespace {

using Ids = std::vector<std::int32_t>;

struct Shown {
  std::string thinking;
  std::string response;
  std::vector<std::string> parts;  // as they came

  ChatSink sink() {
    return [this](ChatChannel channel, std::string_view text) {
      (channel == ChatChannel::kThinking ? thinking : response) += text;
      parts.emplace_back(text);
    };
  }
};

class ChatStreamTest : public testing::Test {
 protected:
  // "{open}x{sep}": markers in braces become their ids, all else is text.
  [[nodiscard]] Ids ids(std::string_view text) const {
    const ChatMarkers& markers = encoder_.markers();
    const std::vector<std::pair<std::string, std::int32_t>> names = {
        {"{open}", markers.open},
        {"{close}", markers.close},
        {"{sep}", markers.sep},
        {"{end}", markers.end_of_message},
        {"{eos}", *tokenizer_.special("[EOS]")},
        {"{pad}", *tokenizer_.special("[PAD]")}};
    Ids all;
    std::string plain;
    const auto flush = [&] {
      const Ids encoded = tokenizer_.encode(plain);
      all.insert(all.end(), encoded.begin(), encoded.end());
      plain.clear();
    };
    while (!text.empty()) {
      bool marker = false;
      for (const auto& [name, id] : names) {
        if (text.starts_with(name)) {
          flush();
          all.push_back(id);
          text.remove_prefix(name.size());
          marker = true;
          break;
        }
      }
      if (!marker) {
        plain += text.front();
        text.remove_prefix(1);
      }
    }
    flush();
    return all;
  }

  Shown stream(const Ids& all, ChatStream& stream) {
    Shown shown;
    for (const std::int32_t id : all) {
      stream.push(id, shown.sink());
    }
    stream.finish(shown.sink());
    return shown;
  }

  Shown stream(std::string_view text, Thinking thinking = Thinking::kMax) {
    ChatStream one(encoder_, thinking);
    return stream(ids(text), one);
  }

  // The rendering of a message without its generation prefix: what a model emits.
  Ids emitted(const ChatMessage& message, Thinking thinking) {
    ChatOptions options = {.thinking = thinking};
    const std::size_t prefix = encoder_.encode_turn({}, options).size();
    options.generation_prefix = false;
    const std::vector<ChatMessage> messages = {message};
    const Ids all = encoder_.encode_turn(messages, options);
    return {all.begin() + static_cast<std::ptrdiff_t>(prefix), all.end()};
  }

  // Every tag ends, and is closed by its own name, the innermost first.
  [[nodiscard]] bool balanced(const Ids& all, Thinking thinking) const {
    const ChatMarkers& markers = encoder_.markers();
    std::vector<std::string> opened = {"message",
                                       thinking == Thinking::kOff ? "response" : "think"};
    std::string tag;
    std::int32_t kind = 0;  // of the marker that has begun
    for (const std::int32_t id : all) {
      if (id == markers.open || id == markers.close) {
        if (kind != 0) {
          return false;
        }
        kind = id;
        tag.clear();
      } else if (id == markers.sep) {
        const std::string name = tag.substr(0, tag.find(' '));
        if (kind == markers.open && !name.empty()) {
          opened.push_back(name);
        } else if (kind == markers.close && !opened.empty() && opened.back() == name) {
          opened.pop_back();
        } else {
          return false;
        }
        kind = 0;
      } else if (kind != 0) {
        tag += tokenizer_.decode(id);
      }
    }
    return opened.empty() && kind == 0;
  }

  Tokenizer tokenizer_ = test::byte_tokenizer_files().load();  // every marker takes many ids
  ChatEncoder encoder_{tokenizer_};
};

constexpr const char* kWhole =
    "hm{close}think{sep}{open}response{sep}yes{close}response{sep}{close}message{sep}{end}";

TEST_F(ChatStreamTest, ChannelsApart) {
  const Shown shown = stream(kWhole);
  EXPECT_EQ(shown.thinking, "hm");
  EXPECT_EQ(shown.response, "yes");
  const Shown off = stream("yes{close}response{sep}{close}message{sep}{end}", Thinking::kOff);
  EXPECT_EQ(off.thinking, "");
  EXPECT_EQ(off.response, "yes");
}

TEST_F(ChatStreamTest, EachCharacterIsShownWhenItIsWhole) {
  EXPECT_EQ(stream("a你b").parts, (std::vector<std::string>{"a", "你", "b"}));
}

// Half a character at the end of a channel belongs to it, not to the next.
TEST_F(ChatStreamTest, WhatWaitsIsShownInItsChannel) {
  const Shown shown = stream("a\xE4\xBD{close}think{sep}{open}response{sep}\xA0{end}");
  EXPECT_EQ(shown.thinking, "a\xE4\xBD");
  EXPECT_EQ(shown.response, "\xA0");
}

TEST_F(ChatStreamTest, NoPartOfAMarkerIsEverShown) {
  for (const char* text :
       {"{close}", "{close}th", "{close}think", "{close}think{sep}", "{close}think{sep}{open}resp",
        "{close}think{sep}between{open}", "{open}", "{open}anything at all", "{close}{close}x{sep}",
        "{sep}", "{eos}", "{pad}", "{end}after", "{close}think{sep}x{open}tools{sep}y{open}call"}) {
    const Shown shown = stream(std::string("a") + text);
    EXPECT_EQ(shown.thinking, "a") << text;
    EXPECT_EQ(shown.response, "") << text;
  }
}

TEST_F(ChatStreamTest, TextThatSpellsAMarkerIsText) {
  EXPECT_EQ(stream("a<|close|>think<|sep|>b").thinking, "a<|close|>think<|sep|>b");
}

TEST_F(ChatStreamTest, AMarkerThatClosesNothingChangesNothing) {
  EXPECT_EQ(stream("a{close}response{sep}b{sep}c{close}{sep}d{open}{sep}e").thinking, "abcde");
}

TEST_F(ChatStreamTest, ToolCallsAreReadBack) {
  const ChatMessage message = {
      .role = ChatRole::kAssistant,
      .content = {{.text = "wait"}},
      .reasoning = "which?",
      .tool_calls = {{.id = "call_1",
                      .name = "a\"&quot;<|sep|>",
                      .arguments = R"({"k \"&\"":"v<|close|>","n":[1,{"x":null}],"t":true})"},
                     {.id = "call_2", .name = "f", .arguments = "{}"},
                     {.id = "call_3", .name = "g", .arguments = "{\"broken\":"}}};
  ChatStream one(encoder_, Thinking::kLow);
  const Shown shown = stream(emitted(message, Thinking::kLow), one);
  EXPECT_EQ(one.message(), message);
  EXPECT_EQ(shown.thinking, "which?");
  EXPECT_EQ(shown.response, "wait");
  EXPECT_TRUE(one.completion().empty());
}

// Cut at every position, also inside markers and calls: what is completed is a message that opens and
// closes its tags in order, and what had been shown stays.
TEST_F(ChatStreamTest, ACutAtEveryPositionIsCompleted) {
  const ChatMessage message = {
      .role = ChatRole::kAssistant,
      .content = {{.text = "ye你"}},
      .reasoning = "hm",
      .tool_calls = {{.id = "call_1", .name = "f", .arguments = R"({"k":"v","n":1})"},
                     {.id = "call_2", .name = "g", .arguments = "raw"}}};
  for (const Thinking thinking : {Thinking::kMax, Thinking::kOff}) {
    const Ids whole = emitted(message, thinking);
    for (std::size_t cut = 0; cut < whole.size(); ++cut) {
      const Ids first(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(cut));
      ChatStream one(encoder_, thinking);
      const Shown before = stream(first, one);
      Ids all = first;
      for (const std::int32_t id : one.completion()) {
        all.push_back(id);
      }
      EXPECT_TRUE(balanced(all, thinking)) << cut;
      EXPECT_EQ(all.back(), encoder_.markers().end_of_message);
      ChatStream again(encoder_, thinking);
      const Shown after = stream(all, again);
      EXPECT_EQ(after.thinking, before.thinking) << cut;
      EXPECT_EQ(after.response, before.response) << cut;
      EXPECT_TRUE(again.completion().empty()) << cut;
    }
  }
}

TEST_F(ChatStreamTest, CompletionsInTheFormat) {
  const std::string message = "{close}message{sep}{end}";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"hm", "{close}think{sep}" + message},
      {"hm{eos}", "{close}think{sep}" + message},
      {"hm{close}", "think{sep}" + message},
      {"hm{close}thi", "nk{sep}" + message},
      {"hm{close}think", "{sep}" + message},
      {"hm{close}think{sep}", message},
      {"hm{close}think{sep}{open}", "response{sep}{close}response{sep}" + message},
      {"hm{close}think{sep}{open}respon", "se{sep}{close}response{sep}" + message},
      {"hm{close}think{sep}{open}response{sep}y", "{close}response{sep}" + message},
      {"hm{close}think{sep}{open}response{sep}y{close}response{sep}", message},
      {"hm{close}think{sep}{open}response{sep}y{close}response{sep}{open}",
       "tools{sep}{close}tools{sep}" + message},
      {"hm{close}think{sep}{open}response{sep}y{close}response{sep}{close}mes", "sage{sep}{end}"},
      {"hm{close}think{sep}{open}response{sep}y{close}response{sep}{close}message{sep}", "{end}"},
      {"hm{close}other", "{sep}{close}think{sep}" + message},
      {"hm{open}other", "{sep}{close}other{sep}{close}think{sep}" + message},
      {"hm{end}", ""},
      {kWhole, ""},
  };
  for (const auto& [text, rest] : cases) {
    ChatStream one(encoder_, Thinking::kMax);
    (void)stream(ids(text), one);
    EXPECT_EQ(tokenizer_.decode(one.completion()), tokenizer_.decode(ids(rest))) << text;
    EXPECT_EQ(one.completion(), ids(rest)) << text;
  }
}

TEST_F(ChatStreamTest, StopsCutEitherChannel) {
  ChatStream one(encoder_, Thinking::kMax, {"STOP", "no"});
  const Shown shown =
      stream(ids("think S{close}think{sep}{open}response{sep}TOP good STOP bad"), one);
  EXPECT_EQ(shown.thinking, "think S");
  EXPECT_EQ(shown.response, "TOP good ");
  EXPECT_EQ(one.stopped(), 0U);
  EXPECT_EQ(one.message().content.front().text, "TOP good ");
}

}  // namespace
}  // namespace k3

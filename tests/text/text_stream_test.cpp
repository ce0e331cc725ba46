// Text as it may be shown: whole characters, cut before a stop wherever tokens end.

#include "k3/text_stream.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/tokenizer_files.h"
#include "text/characters.h"

namespace k3 {
namespace {

// All of it, dealt out in pieces of this size.
std::string streamed(TextStream stream, const std::string& text, std::size_t size) {
  std::string shown;
  for (std::size_t at = 0; at < text.size(); at += size) {
    shown += stream.push(std::string_view(text).substr(at, size));
  }
  return shown + std::string(stream.finish());
}

TEST(TextStream, ShowsACharacterWhenItIsWhole) {
  TextStream stream;
  EXPECT_EQ(stream.push("a\xE4"), "a");
  EXPECT_EQ(stream.push("\xBD"), "");
  EXPECT_EQ(stream.push("\xA0z\xF0\x9F"), "\xE4\xBD\xA0z");
  EXPECT_EQ(stream.push("\x98\x80"), "\xF0\x9F\x98\x80");
  EXPECT_EQ(stream.push("\xC3"), "");
  EXPECT_EQ(stream.finish(), "\xC3");
  EXPECT_EQ(stream.push("b"), "b");
}

// A byte that no character can begin with, or go on with, does not wait for one that completes it.
TEST(TextStream, BytesThatAreNoCharacterDoNotWait) {
  for (const char* text : {"\x80", "\xFF", "\xC1", "\xE0\x9F", "\xED\xA0", "\xF0\x8F", "\xF4\x90",
                           "\xE4\xBD\xC3\x28", "\xF0\x9F\x98\x41", "\xF5\x80"}) {
    TextStream stream;
    EXPECT_EQ(stream.push(text), text);
  }
  for (const char* text : {"\xC2", "\xE0", "\xE0\xA0", "\xED\x9F", "\xF0\x90", "\xF4\x8F\xBF"}) {
    TextStream stream;
    EXPECT_EQ(stream.push(text), "");
    EXPECT_EQ(stream.finish(), text);
  }
}

TEST(TextStream, EveryIdOfAVocabularyStreamsAsTheDecodedWhole) {
  const Tokenizer tokenizer = test::small_tokenizer_files().load();
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::int32_t> ids(40);
    TextStream stream;
    std::string shown;
    std::vector<std::size_t> ends;
    for (std::int32_t& id : ids) {
      id = static_cast<std::int32_t>(random() % tokenizer.vocab_size());
      shown += stream.push(tokenizer.decode(id));
      ends.push_back(shown.size());
    }
    shown += stream.finish();
    ASSERT_EQ(shown, tokenizer.decode(ids));
    for (std::size_t at = 0; at < shown.size();) {
      char32_t point = 0;
      const std::size_t bytes = std::max<std::size_t>(
          1, text::read_code_point(std::string_view(shown).substr(at), point));
      for (const std::size_t end : ends) {
        ASSERT_FALSE(end > at && end < at + bytes) << "a character was cut";
      }
      at += bytes;
    }
  }
}

struct StopCase {
  std::vector<std::string> stops;
  std::string text;
  std::string shown;
};

TEST(TextStream, CutsBeforeTheFirstCompleteStopHoweverTheBytesCome) {
  const std::vector<StopCase> cases = {
      {{"stop"}, "do not stop here", "do not "},
      {{"stop"}, "sto sttop st", "sto sttop st"},
      {{"aab"}, "aaaab", "aa"},
      {{"abcd", "bc"}, "xabcd", "xa"},  // "bc" is complete first
      {{"bc", "abc"}, "xabc", "x"},     // of two that end together the longer
      {{"abab"}, "xababab", "x"},
      {{"\n\n"}, "a\nb\n\nc", "a\nb"},
      {{"\xBD\xA0"}, "a\xE4\xBD\xA0", "a\xE4"},  // inside a character
      {{"你好"}, "a你你好b", "a你"},
      {{""}, "abc", "abc"},
      {{"x"}, "x", ""},
  };
  for (const StopCase& one : cases) {
    for (std::size_t size = 1; size <= one.text.size(); ++size) {
      EXPECT_EQ(streamed(TextStream(one.stops), one.text, size), one.shown)
          << testing::PrintToString(one.text) << " in pieces of " << size;
    }
  }
}

TEST(TextStream, TellsWhichStopAndShowsNothingBehindIt) {
  TextStream stream({"END", "ND."});
  EXPECT_EQ(stream.push("the E"), "the ");
  EXPECT_EQ(stream.stopped(), std::nullopt);
  EXPECT_EQ(stream.push("ND. more"), "");
  EXPECT_EQ(stream.stopped(), 0U);
  EXPECT_EQ(stream.push("more"), "");
  EXPECT_EQ(stream.finish(), "");
}

}  // namespace
}  // namespace k3

// tiktoken.model: what it says, and every fault of it.

#include "text/vocabulary.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "support/tokenizer_files.h"

namespace k3::text {
namespace {

// The small vocabulary, with 768 lines, to be damaged.
class VocabularyTest : public testing::Test {
 protected:
  [[nodiscard]] std::string line(std::size_t number) const {
    const std::size_t begin = begin_of(number);
    return model_.substr(begin, model_.find('\n', begin) - begin);
  }

  void replace_line(std::size_t number, const std::string& text) {
    model_.replace(begin_of(number), line(number).size(), text);
  }

  [[nodiscard]] testing::AssertionResult refused(const std::vector<std::string>& parts) const {
    return test::throws(ErrorKind::kUserFile, parts, [this] {
      const Vocabulary vocabulary({model_, "some/tiktoken.model"});
    });
  }

  [[nodiscard]] std::size_t begin_of(std::size_t number) const {
    std::size_t begin = 0;
    for (; number > 1; --number) {
      begin = model_.find('\n', begin) + 1;
    }
    return begin;
  }

  std::string model_ = test::small_tokenizer_files().model;
};

TEST_F(VocabularyTest, EveryRankHasItsBytesAndTheBytesTheirRank) {
  const Vocabulary vocabulary({model_, "m"});
  const test::Ranks ranks = test::small_tokenizer_files().ranks();
  ASSERT_EQ(ranks.size(), 768U);
  ASSERT_EQ(vocabulary.size(), ranks.size());
  for (const auto& [bytes, rank] : ranks) {
    EXPECT_EQ(vocabulary.bytes(rank), bytes);
    EXPECT_EQ(vocabulary.rank(bytes), rank);
  }
}

TEST_F(VocabularyTest, OtherBytesHaveNoRank) {
  const Vocabulary vocabulary({model_, "m"});
  for (const char* bytes : {"", "qx", "qxz", "qxzjq", "\x80\x80\x80"}) {
    EXPECT_EQ(vocabulary.rank(bytes), Vocabulary::kNoRank);
  }
  EXPECT_EQ(vocabulary.rank(std::string(100000, 'a')), Vocabulary::kNoRank);
}

TEST_F(VocabularyTest, LinesMayStandInAnyOrder) {
  const std::string first = line(1);
  const std::string last = line(768);
  replace_line(768, first);
  replace_line(1, last);
  const Vocabulary vocabulary({model_, "m"});
  EXPECT_EQ(vocabulary.rank("!"), 0);
  EXPECT_EQ(vocabulary.size(), 768U);
}

TEST_F(VocabularyTest, AnEmptyFileIsRefused) {
  model_.clear();
  EXPECT_TRUE(refused({"some/tiktoken.model, line 1", "base64 rank", "0 bytes"}));
}

TEST_F(VocabularyTest, ATruncatedLineIsRefused) {
  model_.pop_back();
  EXPECT_TRUE(refused({"some/tiktoken.model, line 768", "truncated", "newline", line(768)}));
  model_.resize(begin_of(701) + 2);
  EXPECT_TRUE(refused({"line 701", "truncated"}));
}

TEST_F(VocabularyTest, CrLfIsRefused) {
  for (std::size_t at = 0; (at = model_.find('\n', at)) != std::string::npos; at += 2) {
    model_.insert(at, "\r");
  }
  EXPECT_TRUE(refused({"some/tiktoken.model, line 1", "expected LF, found CR LF"}));
}

TEST_F(VocabularyTest, ASingleCrLfIsRefused) {
  replace_line(300, line(300) + "\r");
  EXPECT_TRUE(refused({"line 300", "expected LF, found CR LF"}));
}

TEST_F(VocabularyTest, ADuplicateRankIsRefused) {
  replace_line(500, line(500).substr(0, line(500).find(' ')) + " 42");
  EXPECT_TRUE(refused({"line 500", "duplicate rank", "found 42, as on line 43"}));
}

TEST_F(VocabularyTest, DuplicateBytesAreRefused) {
  replace_line(500, "IQ== 499");
  EXPECT_TRUE(refused({"line 500", "duplicate bytes", "rank 0"}));
}

TEST_F(VocabularyTest, AMissingLineIsRefused) {
  model_.erase(begin_of(400), line(400).size() + 1);
  EXPECT_TRUE(
      refused({"line 767", "not a rank", "0 to 766, as the file has 767 lines", "\"767\""}));
}

TEST_F(VocabularyTest, WhatIsNoRankIsRefused) {
  const std::string digits = line(9).substr(0, line(9).find(' '));
  for (const char* rank :
       {"", "x", "-1", "+8", "08", "8 ", " 8", "8.0", "768", "8x", "99999999999999999999999"}) {
    replace_line(9, digits + " " + rank);
    EXPECT_TRUE(refused({"line 9: not a rank", "0 to 767"})) << rank;
  }
}

TEST_F(VocabularyTest, WhatIsNoBase64IsRefused) {
  for (const char* text : {"", "IQ==", " 8", "I 8", "IQ= 8", "I!== 8", "IR== 8",
                           "\xEF\xBB\xBFIQ== 8", "version https://git-lfs.github.com/spec/v1"}) {
    replace_line(9, text);
    EXPECT_TRUE(refused({"line 9: not a vocabulary line", "\"base64 rank\""})) << text;
  }
}

TEST_F(VocabularyTest, WhatTheMessageShowsIsPrintable) {
  replace_line(9, "\x1b[31m");
  EXPECT_TRUE(refused({"found \"\\x1b[31m\""}));
}

TEST_F(VocabularyTest, AMissingByteIsRefused) {
  replace_line(1, "ISEhIQAA 0");  // instead of "!"
  EXPECT_TRUE(refused({"line 768 (the last)", "all 256 single bytes", "byte 33"}));
}

}  // namespace
}  // namespace k3::text

// The released vocabulary, where K3_TOK_FILES or ../shared has it, and the ids that tiktoken makes with
// it, where ../shared has them.

#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "k3/tokenizer.h"

#include "support/border_characters.h"
#include "support/paths.h"
#include "support/tokenizer_files.h"
#include "support/tokenizer_reference.h"

namespace k3 {
namespace {

using Ids = std::vector<std::int32_t>;

class ReleasedTokenizer : public testing::Test {
 protected:
  void SetUp() override {
    const std::filesystem::path directory = test::released_tokenizer_directory();
    if (directory.empty()) {
      GTEST_SKIP() << test::missing_shared("kimi-k3-tokenizer");
    }
    files_ = test::read_tokenizer_files(directory);
  }

  test::TokenizerFiles files_;
};

TEST_F(ReleasedTokenizer, GivesTheIdsOfTiktoken) {
  if (test::shared("peer/tokenizer").empty()) {
    GTEST_SKIP() << test::missing_shared("peer/tokenizer");
  }
  const Tokenizer tokenizer = files_.load();
  std::ifstream file(test::shared("peer/tokenizer") / "token_goldens.json");
  const nlohmann::json goldens = nlohmann::json::parse(file);
  ASSERT_GE(goldens.at("plain").size(), 36U);
  for (const nlohmann::json& golden : goldens.at("plain")) {
    const auto text = golden.at("text").get<std::string>();
    const Ids ids = tokenizer.encode(text);
    EXPECT_EQ(ids, golden.at("ids").get<Ids>()) << text;
    EXPECT_EQ(tokenizer.decode(ids), text);
  }
}

TEST_F(ReleasedTokenizer, HasTheReleasedIds) {
  const Tokenizer tokenizer = files_.load();
  EXPECT_EQ(tokenizer.vocab_size(), 163840U);
  EXPECT_EQ(tokenizer.special("[EOS]"), 163585);
  EXPECT_EQ(tokenizer.special("<|open|>"), 163587);
  EXPECT_EQ(tokenizer.special("<|close|>"), 163588);
  EXPECT_EQ(tokenizer.special("<|sep|>"), 163589);
  EXPECT_EQ(tokenizer.special("<|reserved_token_163592|>"), 163592);
  EXPECT_EQ(Ids(tokenizer.end_ids().begin(), tokenizer.end_ids().end()), (Ids{163585, 163586}));
}

TEST_F(ReleasedTokenizer, EveryIdDecodedAndEncodedAgainIsTheReferences) {
  const Tokenizer tokenizer = files_.load();
  const test::Ranks ranks = files_.ranks();
  ASSERT_EQ(ranks.size(), 163584U);
  for (const auto& [bytes, rank] : ranks) {
    ASSERT_EQ(tokenizer.decode(rank), bytes);
    ASSERT_EQ(tokenizer.encode(bytes), test::reference_encode(bytes, ranks)) << rank;
  }
}

TEST_F(ReleasedTokenizer, RandomTextsAreTheReferences) {
  const Tokenizer tokenizer = files_.load();
  const test::Ranks ranks = files_.ranks();
  const std::vector<std::string>& borders = test::border_characters();
  std::mt19937 random(11);
  for (int round = 0; round < 5000; ++round) {
    // Pieces of the vocabulary side by side: merges across their borders.
    std::string text;
    for (auto length = 1 + random() % 6; length > 0; --length) {
      text += random() % 3 == 0
                  ? borders[random() % borders.size()]
                  : std::string(tokenizer.decode(static_cast<std::int32_t>(random() % 163584)));
    }
    ASSERT_EQ(tokenizer.encode(text), test::reference_encode(text, ranks))
        << testing::PrintToString(text);
  }
}

}  // namespace
}  // namespace k3

// The tokenizer as a whole, with the vocabulary of the project.

#include "k3/tokenizer.h"

#include <sys/mman.h>

#include <cstddef>
#include <fstream>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/border_characters.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/tokenizer_files.h"
#include "support/tokenizer_reference.h"
#include "text/merger.h"

namespace k3 {
namespace {

using Ids = std::vector<std::int32_t>;

const test::TokenizerFiles& files() {
  static const test::TokenizerFiles kFiles = test::small_tokenizer_files();
  return kFiles;
}

const Tokenizer& tokenizer() {
  static const Tokenizer kTokenizer = files().load();
  return kTokenizer;
}

const test::Ranks& ranks() {
  static const test::Ranks kRanks = files().ranks();
  return kRanks;
}

// Ids as the reference of this suite has them, and a text that comes back.
void expect_as_reference(const std::string& text) {
  const Ids ids = tokenizer().encode(text);
  ASSERT_EQ(ids, test::reference_encode(text, ranks())) << testing::PrintToString(text);
  ASSERT_EQ(tokenizer().decode(ids), text);
}

TEST(Tokenizer, EveryAnswerOfTheFixture) {
  std::ifstream file(test::fixture("tokenizer") / "answers.json");
  const nlohmann::json answers = nlohmann::json::parse(file);
  ASSERT_GT(answers.size(), 5000U);
  for (const nlohmann::json& answer : answers) {
    const nlohmann::json& shown = answer.at(0);  // a string, or bytes
    std::string text;
    if (shown.is_string()) {
      text = shown.get<std::string>();
    } else {
      for (const nlohmann::json& byte : shown) {
        text += static_cast<char>(byte.get<int>());
      }
    }
    const Ids ids = tokenizer().encode(text);
    EXPECT_EQ(ids, answer.at(1).get<Ids>()) << shown;
    EXPECT_EQ(tokenizer().decode(ids), text) << shown;
  }
}

TEST(Tokenizer, EveryIdDecodedAndEncodedAgain) {
  for (const auto& [bytes, rank] : ranks()) {
    EXPECT_EQ(tokenizer().decode(rank), bytes);
    expect_as_reference(bytes);
  }
}

// Merges alone would never find it: none of its parts has a rank.
TEST(Tokenizer, AWholePieceIsLookedUpFirst) {
  EXPECT_EQ(tokenizer().encode("qxzj"), Ids{ranks().at("qxzj")});
  EXPECT_EQ(tokenizer().encode("qxzjq").size(), 5U);
}

// "yzq" has a lower rank than its parts "yz" and "zq".
TEST(Tokenizer, AMergedPairMayRankBelowItsParts) {
  EXPECT_EQ(tokenizer().encode("yzqyzq"), (Ids{ranks().at("yzq"), ranks().at("yzq")}));
}

TEST(Tokenizer, RandomTextsAreTheReferences) {
  std::mt19937 random(7);
  const std::vector<std::string>& borders = test::border_characters();
  for (int round = 0; round < 5000; ++round) {
    std::string text;
    for (auto length = random() % 30; length > 0; --length) {
      text += random() % 3 == 0 ? borders[random() % borders.size()]
                                : std::string(1, "the qxzjy\n'"[random() % 11]);
    }
    expect_as_reference(text);
  }
}

TEST(Tokenizer, RandomBytesComeBack) {
  std::mt19937 random(8);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (auto length = random() % 40; length > 0; --length) {
      text += static_cast<char>(random());
    }
    expect_as_reference(text);
  }
}

// Pieces around the size from which another queue is used.
TEST(Tokenizer, LongPiecesAreTheReferences) {
  std::mt19937 random(9);
  for (const std::size_t size :
       {text::Merger::kLongPiece - 1, text::Merger::kLongPiece, text::Merger::kLongPiece + 1}) {
    for (const std::string_view letters : {"a", "yzq", "qxzjy", "etaoinshr"}) {
      std::string text;
      while (text.size() < size) {
        text += letters[random() % letters.size()];
      }
      expect_as_reference(text);
    }
    expect_as_reference(std::string(size, ' '));
    expect_as_reference(std::string(size, '!'));
  }
}

TEST(Tokenizer, LongPiecesOneAfterAnotherDoNotDisturbEachOther) {
  const std::string first(5000, 'a');
  const std::string second(6000, '!');
  Ids wanted = tokenizer().encode(first);
  for (const std::string& text : {second, first}) {
    const Ids more = tokenizer().encode(text);
    wanted.insert(wanted.end(), more.begin(), more.end());
  }
  EXPECT_EQ(tokenizer().encode(first + second + first), wanted);
}

TEST(Tokenizer, TextNeverYieldsASpecialId) {
  for (const char* name :
       {"[BOS]", "[EOS]", "<|end_of_msg|>", "<|open|>", "<|reserved_token_780|>"}) {
    ASSERT_TRUE(tokenizer().special(name));
    const Ids ids = tokenizer().encode(name);
    EXPECT_GT(ids.size(), 1U);
    for (const std::int32_t id : ids) {
      EXPECT_FALSE(tokenizer().is_special(id));
    }
    EXPECT_EQ(tokenizer().decode(ids), name);
  }
}

TEST(Tokenizer, SpecialsAreFoundByName) {
  EXPECT_EQ(tokenizer().special("<|open|>"), 771);
  EXPECT_EQ(tokenizer().special("<|reserved_token_774|>"), 774);
  EXPECT_EQ(tokenizer().special("[PAD]"), 1023);
  EXPECT_EQ(tokenizer().special("<|reserved_token_771|>"), std::nullopt);
  EXPECT_EQ(tokenizer().special("the"), std::nullopt);
  EXPECT_EQ(tokenizer().special(""), std::nullopt);
}

TEST(Tokenizer, SpecialsDecodeToTheirNames) {
  EXPECT_EQ(tokenizer().decode(771), "<|open|>");
  EXPECT_EQ(tokenizer().decode(774), "<|reserved_token_774|>");
  EXPECT_EQ(tokenizer().decode(Ids{771, ranks().at("a"), 1023}), "<|open|>a[PAD]");
}

TEST(Tokenizer, KnowsItsSizeAndItsSpecials) {
  EXPECT_EQ(tokenizer().vocab_size(), 1024U);
  EXPECT_FALSE(tokenizer().is_special(-1));
  EXPECT_FALSE(tokenizer().is_special(767));
  EXPECT_TRUE(tokenizer().is_special(768));
  EXPECT_TRUE(tokenizer().is_special(1023));
  EXPECT_FALSE(tokenizer().is_special(1024));
}

TEST(Tokenizer, EndIdsComeFromTheConfig) {
  EXPECT_EQ(Ids(tokenizer().end_ids().begin(), tokenizer().end_ids().end()), (Ids{769, 770}));
}

TEST(Tokenizer, AnUnknownIdIsRefused) {
  for (const std::int32_t id : {-1, 1024, 2147483647, -2147483647 - 1}) {
    EXPECT_TRUE(test::throws(ErrorKind::kUsage, {"token id", "0 to 1023", std::to_string(id)},
                             [id] { static_cast<void>(tokenizer().decode(id)); }));
  }
}

TEST(Tokenizer, MoreThan4GiBAreRefused) {
  constexpr std::size_t kSize = std::size_t{1} << 32U;
  // Never touched: address space alone.
  void* const nothing =
      mmap(nullptr, kSize, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(nothing, MAP_FAILED);
  const std::string_view text(static_cast<const char*>(nothing), kSize);
  EXPECT_TRUE(test::throws(ErrorKind::kUsage, {"too long", "4 GiB", "4294967296 bytes"},
                           [text] { static_cast<void>(tokenizer().encode(text)); }));
  munmap(nothing, kSize);
}

TEST(Tokenizer, MovesWithItsVocabulary) {
  Tokenizer first = files().load();
  const Tokenizer second = std::move(first);
  EXPECT_EQ(second.encode("Hello world"), tokenizer().encode("Hello world"));
}

TEST(Tokenizer, AVocabularyCutBetweenLinesIsRefused) {
  test::TokenizerFiles cut = files();
  cut.model.resize(cut.model.rfind('\n', cut.model.size() - 2) + 1);
  EXPECT_TRUE(test::throws(ErrorKind::kUserFile,
                           {"tokenizer_config.json", "767 to 1022",
                            "tiktoken.model end on line 767", "truncated", "1023"},
                           [&] { static_cast<void>(cut.load()); }));
}

}  // namespace
}  // namespace k3

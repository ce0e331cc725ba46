// The eight rules, one by one and against a matcher that backtracks.

#include "text/splitter.h"

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "support/border_characters.h"
#include "support/tokenizer_reference.h"

namespace k3::text {
namespace {

using Pieces = std::vector<std::string>;

Pieces split(std::string_view text) {
  Pieces pieces;
  for (Splitter splitter(text); !splitter.done();) {
    pieces.emplace_back(splitter.next());
  }
  return pieces;
}

struct Case {
  std::string_view text;
  Pieces pieces;
};

void expect_pieces(const std::vector<Case>& cases) {
  for (const Case& expected : cases) {
    EXPECT_EQ(split(expected.text), expected.pieces) << expected.text;
  }
}

TEST(Splitter, NothingHasNoPieces) {
  EXPECT_TRUE(Splitter("").done());
}

TEST(Splitter, Rule1TakesHanOfAnyCategory) {
  expect_pieces({{"中文", {"中文"}},
                 {"a中b", {"a", "中", "b"}},
                 {"中々〇⼀", {"中々〇⼀"}},
                 {"中'sx", {"中", "'sx"}},
                 {"中あ한", {"中", "あ한"}},
                 {"1〇中", {"1〇", "中"}},    // a Han number behind a digit is a number
                 {"!⼀中", {"!⼀", "中"}}});  // and a radical behind a symbol a symbol
}

TEST(Splitter, Rules2And3TakeOneCharacterBeforeAWord) {
  expect_pieces({{"a b", {"a", " b"}},
                 {"a  b", {"a", " ", " b"}},
                 {"\tb", {"\tb"}},
                 {"!b", {"!b"}},
                 {"!!b", {"!!", "b"}},
                 {"\nb", {"\n", "b"}},
                 {"1b", {"1", "b"}},
                 {"!B", {"!B"}},
                 {" \u0301B", {" \u0301", "B"}}});
}

TEST(Splitter, Rules2And3CutAtCapitals) {
  expect_pieces({{"camelCaseName", {"camel", "Case", "Name"}},
                 {"HTTPServer", {"HTTPServer"}},
                 {"HTTP", {"HTTP"}},
                 {"aB", {"a", "B"}},
                 {"ABcDE", {"ABc", "DE"}},
                 {"ǅa", {"ǅa"}},
                 {"aǅ", {"a", "ǅ"}}});
}

// Lm, Lo and marks are upper and lower at once.
TEST(Splitter, Rule2GivesBackCapitals) {
  expect_pieces({{"AªB", {"Aª", "B"}},
                 {"AªBC", {"Aª", "BC"}},
                 {"ªAªBª", {"ªAªBª"}},
                 {"あAB", {"あ", "AB"}},
                 {"\u0301ABC", {"\u0301", "ABC"}},  // the mark is the word, not what leads it
                 {"\u0301\u0301ABC", {"\u0301\u0301", "ABC"}},
                 {"\u0301ABc", {"\u0301ABc"}},
                 {"!ªAB", {"!ª", "AB"}}});
}

TEST(Splitter, ContractionsInBothCasesEndAWord) {
  expect_pieces({{"don't", {"don't"}},
                 {"DON'T", {"DON'T"}},
                 {"we'Ve", {"we'Ve"}},
                 {"we'veX", {"we've", "X"}},
                 {"a'\u017fb", {"a'\u017f", "b"}},
                 {"a'sting", {"a's", "ting"}},
                 {"a'lla'rea'ma'da'ta'x", {"a'll", "a're", "a'm", "a'd", "a't", "a", "'x"}},
                 {"a''s", {"a", "''", "s"}},
                 {"1's", {"1", "'s"}},
                 {"a'r", {"a", "'r"}},
                 {"a'", {"a", "'"}}});
}

TEST(Splitter, Rule4TakesThreeDigits) {
  expect_pieces({{"1234567", {"123", "456", "7"}},
                 {"١٢٣٤", {"١٢٣", "٤"}},
                 {"1ⅷ½x", {"1ⅷ½", "x"}},
                 {" 1", {" ", "1"}}});
}

TEST(Splitter, Rule5TakesSymbolsWithABlankBeforeAndLineEndsBehind) {
  expect_pieces({{"a !?\r\n\nb", {"a", " !?\r\n\n", "b"}},
                 {"  !", {" ", " !"}},
                 {"\t!", {"\t", "!"}},
                 {"! !", {"!", " !"}},
                 {"!\u0301", {"!\u0301"}},
                 {"!!\u0301a", {"!!\u0301", "a"}},
                 {"👨\u200d👩", {"👨\u200d👩"}},
                 {std::string_view("\0\x01", 2), {std::string("\0\x01", 2)}},
                 {"\ufeffA", {"\ufeffA"}},
                 {"\x1c!", {"\x1c!"}}});
}

TEST(Splitter, Rules6To8CutWhiteSpace) {
  expect_pieces({{" \r\n  x", {" \r\n", " ", " x"}},
                 {"\n \n \n", {"\n \n \n"}},
                 {"x  \n\n  ", {"x", "  \n\n", "  "}},
                 {"x   ", {"x", "   "}},
                 {"x   1", {"x", "  ", " ", "1"}},
                 {"\u3000\u3000x", {"\u3000", "\u3000x"}},
                 {"\u2028\u2028!", {"\u2028", "\u2028", "!"}},
                 {"   !", {"  ", " !"}},
                 {"\r\r\nx", {"\r\r\n", "x"}}});
}

TEST(Splitter, BytesOutsideOfUtf8AreSymbols) {
  expect_pieces({{"a\xE4"
                  "b",
                  {"a",
                   "\xE4"
                   "b"}},
                 {"\xE4\xBD"
                  "a",
                  {"\xE4\xBD", "a"}},
                 {" \xFF\r\n", {" \xFF\r\n"}},
                 {"1\xFF"
                  "2",
                  {"1", "\xFF", "2"}},
                 {"中\xE4\xB8", {"中", "\xE4\xB8"}},
                 {"A\xCC", {"A", "\xCC"}}});
}

// Splits as the reference does, and loses nothing.
void expect_as_reference(const std::string& text) {
  ASSERT_EQ(split(text), test::reference_split(text)) << testing::PrintToString(text);
}

TEST(Splitter, AllPairsAndTriplesOfBordersSplitAsTheReferenceDoes) {
  const std::vector<std::string>& borders = test::border_characters();
  for (const std::string& first : borders) {
    for (const std::string& second : borders) {
      expect_as_reference(first + second);
      for (const std::string& third : borders) {
        expect_as_reference(std::string(first).append(second).append(third));
      }
    }
  }
}

TEST(Splitter, RandomTextsSplitAsTheReferenceDoes) {
  const std::vector<std::string>& borders = test::border_characters();
  std::mt19937 random(5);
  for (int round = 0; round < 40000; ++round) {
    // Few different characters: long runs, much to give back.
    std::vector<std::string> some(3);
    for (std::string& character : some) {
      character = borders[random() % borders.size()];
    }
    const bool any = round % 2 == 0;
    std::string text;
    for (auto length = random() % 24; length > 0; --length) {
      text += any ? borders[random() % borders.size()] : some[random() % some.size()];
    }
    expect_as_reference(text);
  }
}

TEST(Splitter, RandomBytesSplitAsTheReferenceDoes) {
  std::mt19937 random(6);
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (auto length = random() % 16; length > 0; --length) {
      text += static_cast<char>(random() % 4 == 0 ? 0x20 + random() % 0x60 : random());
    }
    expect_as_reference(text);
  }
}

}  // namespace
}  // namespace k3::text

// UTF-8 and the classes of characters.

#include "text/characters.h"

#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace k3::text {
namespace {

// The scalar value as UTF-8, also where there is none (surrogates, beyond U+10FFFF).
std::string utf8(char32_t point) {
  const auto tail = [point](unsigned shift) {
    return static_cast<char>(0x80U | ((point >> shift) & 0x3FU));
  };
  if (point < 0x80) {
    return {static_cast<char>(point)};
  }
  if (point < 0x800) {
    return {static_cast<char>(0xC0U | (point >> 6U)), tail(0)};
  }
  if (point < 0x10000) {
    return {static_cast<char>(0xE0U | (point >> 12U)), tail(6), tail(0)};
  }
  return {static_cast<char>(0xF0U | (point >> 18U)), tail(12), tail(6), tail(0)};
}

TEST(Characters, EveryScalarValueIsRead) {
  for (char32_t point = 0; point < kCodePoints; ++point) {
    const bool surrogate = point >= 0xD800 && point < 0xE000;
    const std::string text = utf8(point) + "x";
    char32_t found = 0;
    const std::size_t bytes = read_code_point(text, found);
    ASSERT_EQ(bytes, surrogate ? 0 : text.size() - 1) << std::hex << static_cast<unsigned>(point);
    ASSERT_EQ(found, surrogate ? 0 : point);
  }
}

TEST(Characters, IllFormedSequencesAreNone) {
  for (const std::string_view text : {"\x80",
                                      "\xBF",
                                      "\xC0\x80",
                                      "\xC1\xBF",
                                      "\xC2",
                                      "\xC2\x41",
                                      "\xC2\xC2",
                                      "\xE0\x80\x80",
                                      "\xE0\x9F\xBF",
                                      "\xE1\x80",
                                      "\xE1\x80\x41",
                                      "\xE1\x41\x80",
                                      "\xED\xA0\x80",
                                      "\xED\xBF\xBF",
                                      "\xF0\x8F\xBF\xBF",
                                      "\xF0\x90\x80",
                                      "\xF0\x90\x80\x41",
                                      "\xF4\x90\x80\x80",
                                      "\xF5\x80\x80\x80",
                                      "\xF8\x88\x80\x80\x80",
                                      "\xFF",
                                      ""}) {
    char32_t point = 7;
    EXPECT_EQ(read_code_point(text, point), 0U);
    EXPECT_EQ(point, 7U);
  }
}

TEST(Characters, AByteOfNoSequenceIsACharacterWithoutProperties) {
  const Character broken = character_table().at("a\xE4\xBDz", 1);
  EXPECT_EQ(broken.bytes, 1);
  EXPECT_EQ(broken.properties, 0);
  EXPECT_EQ(character_table().at("a\xE4\xBDz", 3).properties, kLetter | kLower);
}

TEST(Characters, TheEndOfTheTextHasNoBytes) {
  EXPECT_EQ(character_table().at("", 0).bytes, 0);
  EXPECT_EQ(character_table().at("\u4e2d", 3).bytes, 0);
}

struct Known {
  char32_t point;
  int properties;
};

// The table as a whole is compared with another source in tools/reference/test_tokenizer.py.
TEST(Characters, KnownClasses) {
  constexpr int kAny = kUpper | kLower;
  for (const Known& known : {
           Known{'a', kLetter | kLower},
           Known{'Z', kLetter | kUpper},
           Known{0x1C5, kLetter | kUpper},  // Lt
           Known{0x2B0, kLetter | kAny},    // Lm
           Known{0xAA, kLetter | kAny},     // Lo
           Known{0x301, kAny},              // Mn
           Known{0x903, kAny},              // Mc
           Known{0x20DD, kAny},             // Me
           Known{0x4E2D, kHan | kLetter},   // Lo
           Known{0x3005, kHan | kLetter},   // Lm
           Known{0x3007, kHan | kNumber},   // Nl
           Known{0x2F00, kHan},             // So
           Known{0x16FF0, kHan},            // Mc
           Known{0x30FC, kLetter | kAny},   // of the kana, Han in no text
           Known{0x302A, kAny},             // Mn between Han characters, of no script
           Known{0x663, kNumber},           // Nd
           Known{0xBD, kNumber},            // No
           Known{'\r', kWhite | kNewline},
           Known{'\n', kWhite | kNewline},
           Known{'\v', kWhite},
           Known{0x85, kWhite},
           Known{0x2028, kWhite},
           Known{0x3000, kWhite},
           Known{0x1C, 0},    // a separator, no White_Space
           Known{0x200B, 0},  // zero width space: Cf
           Known{0xFEFF, 0},
           Known{0x1F600, 0},
           Known{0x378, 0},  // unassigned
           Known{0x10FFFF, 0},
       }) {
    EXPECT_EQ(character_table().properties(known.point), known.properties)
        << std::hex << static_cast<unsigned>(known.point);
  }
}

TEST(Characters, WhatUnicode16AddsIsThere) {
  EXPECT_EQ(character_table().properties(0x1C89), kLetter | kUpper);
  EXPECT_EQ(character_table().properties(0x1C8A), kLetter | kLower);
  EXPECT_EQ(character_table().properties(0x105C0), kLetter | kUpper | kLower);
  EXPECT_EQ(character_table().properties(0x10D69), kUpper | kLower);
  EXPECT_EQ(character_table().properties(0x1CCF0), kNumber);
  EXPECT_EQ(character_table().properties(0x2EBF0), kHan | kLetter);
  EXPECT_EQ(character_table().properties(0x2EE5E), 0);
}

}  // namespace
}  // namespace k3::text

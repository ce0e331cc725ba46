// The characters of Unicode by what the tokenizer's rules ask of them (docs/tokenizer.md).
#pragma once

#include <cstdint>
#include <span>

namespace k3::text {

// Properties of a character; any combination of them is its class. L, N, Lu ... are the general
// categories, Han is the script.
enum CharacterProperty : std::uint8_t {
  kHan = 1,
  kUpper = 2,     // (Lu Lt Lm Lo M) without Han: may stand in the first part of a word
  kLower = 4,     // (Ll Lm Lo M) without Han: may stand in its second part
  kLetter = 8,    // L
  kNumber = 16,   // N
  kWhite = 32,    // White_Space
  kNewline = 64,  // CR and LF, which are white as well
};

// Code points from `first` up to the `first` of the next range.
struct CharacterRange {
  char32_t first = 0;
  std::uint8_t properties = 0;
};

// All of Unicode in ascending order, from 0. Made by tools/reference/make_character_ranges.py.
[[nodiscard]] std::span<const CharacterRange> character_ranges() noexcept;

}  // namespace k3::text

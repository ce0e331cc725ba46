// Text as a sequence of characters with their properties.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/character_ranges.h"

namespace k3::text {

inline constexpr char32_t kCodePoints = 0x110000;

// What stands at one place of a text. Text is UTF-8; a byte that begins no well-formed sequence
// (Unicode, table 3-7) is a character by itself, without properties, as U+FFFD would be.
struct Character {
  std::uint8_t properties = 0;
  std::uint8_t bytes = 0;  // 0 at the end of the text

  [[nodiscard]] bool is(std::uint8_t any) const noexcept { return (properties & any) != 0; }
};

// Bytes of the well-formed UTF-8 sequence that `text` begins with; 0 when it begins with none.
// `point` is its code point.
[[nodiscard]] std::size_t read_code_point(std::string_view text, char32_t& point) noexcept;

// The beginning of a well-formed sequence, at least a byte of it and not the whole.
[[nodiscard]] bool begins_character(std::string_view text) noexcept;

// Properties of all code points, in two stages: 256 of them share a page, equal pages are one.
class CharacterTable {
 public:
  CharacterTable();

  [[nodiscard]] std::uint8_t properties(char32_t point) const noexcept {
    return pages_[page_of_[point / kPageSize]][point % kPageSize];
  }

  // The character at `offset`, which may be the end of the text.
  [[nodiscard]] Character at(std::string_view text, std::size_t offset) const noexcept {
    if (offset < text.size() && static_cast<unsigned char>(text[offset]) < 0x80) {
      return {pages_[page_of_[0]][static_cast<unsigned char>(text[offset])], 1};
    }
    return beyond_ascii(text, offset);
  }

 private:
  static constexpr std::size_t kPageSize = 256;
  using Page = std::array<std::uint8_t, kPageSize>;

  [[nodiscard]] Character beyond_ascii(std::string_view text, std::size_t offset) const noexcept;

  std::vector<Page> pages_;
  std::array<std::uint16_t, kCodePoints / kPageSize> page_of_ = {};
};

// The one table, made at the first call.
[[nodiscard]] const CharacterTable& character_table();

}  // namespace k3::text

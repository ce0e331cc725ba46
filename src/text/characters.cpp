#include "text/characters.h"

#include <algorithm>

namespace k3::text {
namespace {

// The smallest and largest second byte of a sequence, by its first byte.
struct Lead {
  std::uint8_t bytes = 0;  // 0: begins no sequence
  std::uint8_t least = 0x80;
  std::uint8_t most = 0xBF;
};

Lead lead(std::uint8_t byte) noexcept {
  if (byte >= 0xC2 && byte <= 0xDF) {
    return {2};
  }
  if (byte >= 0xE0 && byte <= 0xEF) {
    // E0: no overlong forms. ED: no surrogates.
    const std::uint8_t least = byte == 0xE0 ? 0xA0 : 0x80;
    const std::uint8_t most = byte == 0xED ? 0x9F : 0xBF;
    return {3, least, most};
  }
  if (byte >= 0xF0 && byte <= 0xF4) {
    // F0: no overlong forms. F4: nothing beyond U+10FFFF.
    const std::uint8_t least = byte == 0xF0 ? 0x90 : 0x80;
    const std::uint8_t most = byte == 0xF4 ? 0x8F : 0xBF;
    return {4, least, most};
  }
  return {};
}

}  // namespace

std::size_t read_code_point(std::string_view text, char32_t& point) noexcept {
  if (text.empty()) {
    return 0;
  }
  const auto byte = [text](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  if (byte(0) < 0x80) {
    point = byte(0);
    return 1;
  }
  const Lead first = lead(byte(0));
  if (first.bytes == 0 || text.size() < first.bytes || byte(1) < first.least ||
      byte(1) > first.most) {
    return 0;
  }
  // The first byte of n bytes carries 7 - n bits, each other one 6.
  char32_t value = byte(0) & (0x7FU >> first.bytes);
  for (std::size_t i = 1; i < first.bytes; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) {
      return 0;
    }
    value = (value << 6U) | (byte(i) & 0x3FU);
  }
  point = value;
  return first.bytes;
}

bool begins_character(std::string_view text) noexcept {
  const auto byte = [text](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const Lead first = text.empty() ? Lead() : lead(byte(0));
  if (text.size() >= first.bytes) {
    return false;
  }
  return (text.size() < 2 || (byte(1) >= first.least && byte(1) <= first.most)) &&
         (text.size() < 3 || (byte(2) & 0xC0U) == 0x80U);
}

CharacterTable::CharacterTable() {
  const auto ranges = character_ranges();
  std::size_t range = 0;
  Page page = {};
  for (char32_t point = 0; point < kCodePoints; ++point) {
    while (range + 1 < ranges.size() && ranges[range + 1].first <= point) {
      ++range;
    }
    page[point % kPageSize] = ranges[range].properties;
    if (point % kPageSize == kPageSize - 1) {
      const auto same = std::find(pages_.begin(), pages_.end(), page);
      page_of_[point / kPageSize] = static_cast<std::uint16_t>(same - pages_.begin());
      if (same == pages_.end()) {
        pages_.push_back(page);
      }
    }
  }
}

Character CharacterTable::beyond_ascii(std::string_view text, std::size_t offset) const noexcept {
  if (offset >= text.size()) {
    return {};
  }
  char32_t point = 0;
  const std::size_t bytes = read_code_point(text.substr(offset), point);
  return bytes == 0 ? Character{0, 1}
                    : Character{properties(point), static_cast<std::uint8_t>(bytes)};
}

const CharacterTable& character_table() {
  static const CharacterTable kTable;
  return kTable;
}

}  // namespace k3::text

// Cuts text into the pieces that are then merged one by one.
#pragma once

#include <cstddef>
#include <string_view>

#include "text/characters.h"

namespace k3::text {

// The eight rules of docs/tokenizer.md, tried in order at each place; the first that matches gives
// the piece. Concatenated, the pieces are the text. Time is linear in its length.
class Splitter {
 public:
  explicit Splitter(std::string_view text) : text_(text), table_(character_table()) {}

  [[nodiscard]] bool done() const noexcept { return offset_ == text_.size(); }

  // The next piece, at least a character; call it only while there is more.
  [[nodiscard]] std::string_view next() noexcept;

 private:
  // A place in the text, or "no match".
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  [[nodiscard]] Character at(std::size_t offset) const noexcept { return table_.at(text_, offset); }

  [[nodiscard]] std::size_t end_of_run(std::size_t begin, std::uint8_t properties) const noexcept;

  // The rules, as the end of what they match from `begin`, whose character is `first`.
  [[nodiscard]] std::size_t match(std::size_t begin) const noexcept;
  [[nodiscard]] std::size_t match_word(std::size_t begin, Character first) const noexcept;  // 2, 3
  [[nodiscard]] std::size_t match_digits(std::size_t begin) const noexcept;                 // 4
  [[nodiscard]] std::size_t match_symbols(std::size_t begin) const noexcept;                // 5
  [[nodiscard]] std::size_t match_white(std::size_t begin) const noexcept;  // 6 to 8

  [[nodiscard]] std::size_t lower_word(std::size_t begin) const noexcept;
  [[nodiscard]] std::size_t upper_word(std::size_t begin) const noexcept;
  [[nodiscard]] std::size_t skip_contraction(std::size_t begin) const noexcept;

  std::string_view text_;
  const CharacterTable& table_;
  std::size_t offset_ = 0;
};

}  // namespace k3::text

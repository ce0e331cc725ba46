#include "text/splitter.h"

#include <algorithm>
#include <array>

namespace k3::text {
namespace {

// None of CR, LF, L, N: may stand before a word.
bool may_lead(Character character) noexcept {
  return character.bytes != 0 && !character.is(kNewline | kLetter | kNumber);
}

// None of white space, L, N.
bool is_symbol(Character character) noexcept {
  return character.bytes != 0 && !character.is(kWhite | kLetter | kNumber);
}

char ascii_lower(char letter) noexcept {
  return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
}

// `text` begins with `lower`, in either case of ASCII.
bool begins_with(std::string_view text, std::string_view lower) noexcept {
  return text.size() >= lower.size() &&
         std::equal(lower.begin(), lower.end(), text.begin(),
                    [](char wanted, char found) { return wanted == ascii_lower(found); });
}

}  // namespace

std::string_view Splitter::next() noexcept {
  const std::size_t begin = offset_;
  offset_ = match(begin);
  return text_.substr(begin, offset_ - begin);
}

std::size_t Splitter::match(std::size_t begin) const noexcept {
  const Character first = at(begin);
  if (first.is(kHan)) {
    return end_of_run(begin, kHan);  // rule 1
  }
  if (const std::size_t end = match_word(begin, first); end != kNone) {
    return end;
  }
  if (first.is(kNumber)) {
    return match_digits(begin);
  }
  if (const std::size_t end = match_symbols(begin); end != kNone) {
    return end;
  }
  return match_white(begin);
}

std::size_t Splitter::end_of_run(std::size_t begin, std::uint8_t properties) const noexcept {
  std::size_t end = begin;
  for (Character next = at(end); next.is(properties); next = at(end)) {
    end += next.bytes;
  }
  return end;
}

// Rules 2 and 3: the optional character is taken where that leads to a match, else left out.
std::size_t Splitter::match_word(std::size_t begin, Character first) const noexcept {
  const bool leads = may_lead(first);
  if (!leads && !first.is(kUpper | kLower)) {
    return kNone;
  }
  const std::size_t after = begin + first.bytes;
  std::size_t end = leads ? lower_word(after) : kNone;
  if (end == kNone) {
    end = lower_word(begin);
  }
  if (end == kNone && leads) {
    end = upper_word(after);
  }
  if (end == kNone) {
    end = upper_word(begin);
  }
  return end == kNone ? kNone : skip_contraction(end);
}

// upper* lower+ with backtracking. Where a lower follows the run of uppers, it goes on from there.
// Else the last upper of the run that is a lower too serves as the one lower: what follows it in the
// run is no lower.
std::size_t Splitter::lower_word(std::size_t begin) const noexcept {
  std::size_t end = begin;
  std::size_t after_last_lower = kNone;
  Character next = at(end);
  for (; next.is(kUpper); next = at(end)) {
    end += next.bytes;
    if (next.is(kLower)) {
      after_last_lower = end;
    }
  }
  return next.is(kLower) ? end_of_run(end, kLower) : after_last_lower;
}

// upper+ lower*. Nothing to backtrack: neither part must give up what it took.
std::size_t Splitter::upper_word(std::size_t begin) const noexcept {
  const std::size_t end = end_of_run(begin, kUpper);
  return end == begin ? kNone : end_of_run(end, kLower);
}

// 's 't 're 've 'm 'll 'd in either case. Case folding takes U+017F, the long s, for an s.
std::size_t Splitter::skip_contraction(std::size_t begin) const noexcept {
  constexpr std::array<std::string_view, 8> kContractions = {"'s",  "'\u017f", "'t",  "'re",
                                                             "'ve", "'m",      "'ll", "'d"};
  const std::string_view rest = text_.substr(begin);
  if (rest.empty() || rest.front() != '\'') {
    return begin;
  }
  for (const std::string_view contraction : kContractions) {
    if (begins_with(rest, contraction)) {
      return begin + contraction.size();
    }
  }
  return begin;
}

std::size_t Splitter::match_digits(std::size_t begin) const noexcept {
  constexpr int kMost = 3;
  std::size_t end = begin;
  for (int digit = 0; digit < kMost && at(end).is(kNumber); ++digit) {
    end += at(end).bytes;
  }
  return end;
}

// The optional blank is no symbol: without a symbol after it there is no match.
std::size_t Splitter::match_symbols(std::size_t begin) const noexcept {
  const std::size_t symbols = text_[begin] == ' ' ? begin + 1 : begin;
  std::size_t end = symbols;
  for (Character next = at(end); is_symbol(next); next = at(end)) {
    end += next.bytes;
  }
  return end == symbols ? kNone : end_of_run(end, kNewline);
}

// Of a run of white space: all up to its last CR or LF (rule 6); else all but the last character, or
// all of it at the end of the text (7); else the one that there is (8).
std::size_t Splitter::match_white(std::size_t begin) const noexcept {
  std::size_t end = begin;
  std::size_t last = begin;  // where the last character begins
  std::size_t after_newline = kNone;
  for (Character next = at(end); next.is(kWhite); next = at(end)) {
    last = end;
    end += next.bytes;
    if (next.is(kNewline)) {
      after_newline = end;
    }
  }
  if (after_newline != kNone) {
    return after_newline;
  }
  return end == text_.size() || last == begin ? end : last;
}

}  // namespace k3::text

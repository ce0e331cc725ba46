#include "support/tokenizer_reference.h"

#include <array>
#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <span>

#include "text/characters.h"

namespace k3::test {
namespace {

using text::kHan;
using text::kLetter;
using text::kLower;
using text::kNewline;
using text::kNumber;
using text::kUpper;
using text::kWhite;

struct Symbol {
  std::uint8_t properties = 0;
  std::string bytes;
};

std::vector<Symbol> symbols(std::string_view text) {
  std::vector<Symbol> all;
  while (!text.empty()) {
    const text::Character next = text::character_table().at(text, 0);
    all.push_back({next.properties, std::string(text.substr(0, next.bytes))});
    text.remove_prefix(next.bytes);
  }
  return all;
}

// `least` to `most` symbols that `accepts` holds for, as many as possible first.
struct Repeat {
  std::function<bool(const Symbol&)> accepts;
  std::size_t least = 1;
  std::size_t most = 1;
  bool not_before_visible = false;  // (?!\S) stands behind it
};

using Rule = std::vector<Repeat>;
constexpr std::size_t kMany = std::numeric_limits<std::size_t>::max();

std::function<bool(const Symbol&)> has(unsigned properties) {
  return [properties](const Symbol& symbol) { return (symbol.properties & properties) != 0; };
}

std::function<bool(const Symbol&)> lacks(unsigned properties) {
  return [properties](const Symbol& symbol) { return (symbol.properties & properties) == 0; };
}

// Where a match of `rule` from `begin` ends.
std::optional<std::size_t> match(std::span<const Repeat> rule,
                                 const std::vector<Symbol>& text,
                                 std::size_t begin) {
  if (rule.empty()) {
    return begin;
  }
  const Repeat& first = rule.front();
  std::size_t count = 0;
  while (count < first.most && begin + count < text.size() && first.accepts(text[begin + count])) {
    ++count;
  }
  for (; count + 1 > first.least; --count) {
    const std::size_t end = begin + count;
    const bool visible = end < text.size() && (text[end].properties & kWhite) == 0;
    if (!first.not_before_visible || !visible) {
      if (const auto found = match(rule.subspan(1), text, end)) {
        return found;
      }
    }
    if (count == 0) {
      break;
    }
  }
  return std::nullopt;
}

const std::vector<Rule>& rules() {
  const Repeat lead = {lacks(kNewline | kLetter | kNumber), 0, 1};
  const Repeat blank = {[](const Symbol& symbol) { return symbol.bytes == " "; }, 0, 1};
  static const std::vector<Rule> kRules = {
      {{has(kHan), 1, kMany}},
      {lead, {has(kUpper), 0, kMany}, {has(kLower), 1, kMany}},
      {lead, {has(kUpper), 1, kMany}, {has(kLower), 0, kMany}},
      {{has(kNumber), 1, 3}},
      {blank, {lacks(kWhite | kLetter | kNumber), 1, kMany}, {has(kNewline), 0, kMany}},
      {{has(kWhite), 0, kMany}, {has(kNewline), 1, kMany}},
      {{has(kWhite), 1, kMany, true}},
      {{has(kWhite), 1, kMany}},
  };
  return kRules;
}

std::size_t after_contraction(const std::vector<Symbol>& text, std::size_t begin) {
  constexpr std::array<std::string_view, 21> kAll = {
      "'s",  "'S",  "'\u017f", "'t", "'T",  "'re", "'rE", "'Re", "'RE", "'ve", "'vE",
      "'Ve", "'VE", "'m",      "'M", "'ll", "'lL", "'Ll", "'LL", "'d",  "'D"};
  for (const std::string_view contraction : kAll) {
    std::string found;
    std::size_t end = begin;
    while (end < text.size() && found.size() < contraction.size()) {
      found += text[end++].bytes;
    }
    if (found == contraction) {
      return end;
    }
  }
  return begin;
}

}  // namespace

std::vector<std::string> reference_split(std::string_view text) {
  const std::vector<Symbol> all = symbols(text);
  std::vector<std::string> pieces;
  for (std::size_t begin = 0; begin < all.size();) {
    std::optional<std::size_t> end;
    for (std::size_t rule = 0; rule < rules().size() && !end; ++rule) {
      end = match(rules()[rule], all, begin);
      if (end && (rule == 1 || rule == 2)) {
        end = after_contraction(all, *end);
      }
    }
    std::string& piece = pieces.emplace_back();
    for (; begin < end.value(); ++begin) {
      piece += all[begin].bytes;
    }
  }
  return pieces;
}

std::vector<std::int32_t> reference_merge(std::string_view piece, const Ranks& ranks) {
  if (const auto whole = ranks.find(piece); whole != ranks.end()) {
    return {whole->second};
  }
  std::vector<std::string> parts;
  for (const char byte : piece) {
    parts.emplace_back(1, byte);
  }
  while (true) {
    std::int32_t lowest = std::numeric_limits<std::int32_t>::max();
    std::size_t place = parts.size();
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto joined = ranks.find(parts[i] + parts[i + 1]);
      if (joined != ranks.end() && joined->second < lowest) {
        lowest = joined->second;
        place = i;
      }
    }
    if (place == parts.size()) {
      break;
    }
    parts[place] += parts[place + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(place) + 1);
  }
  std::vector<std::int32_t> ids;
  ids.reserve(parts.size());
  for (const std::string& part : parts) {
    ids.push_back(ranks.at(part));
  }
  return ids;
}

std::vector<std::int32_t> reference_encode(std::string_view text, const Ranks& ranks) {
  std::vector<std::int32_t> ids;
  for (const std::string& piece : reference_split(text)) {
    const std::vector<std::int32_t> merged = reference_merge(piece, ranks);
    ids.insert(ids.end(), merged.begin(), merged.end());
  }
  return ids;
}

}  // namespace k3::test

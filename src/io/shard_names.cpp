#include "io/shard_names.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

namespace k3::io {
namespace {

constexpr std::size_t kMaxShards = 100'000;  // a name that states more is no shard's

// <stem><number><tail>, tail being "-of-<total>.safetensors".
struct NumberedName {
  std::string_view stem;
  std::string_view tail;
  std::size_t digits = 0;
  std::size_t number = 0;
  std::size_t total = 0;
};

std::optional<std::size_t> parse_number(std::string_view digits) {
  std::size_t value = 0;
  const auto [end, fault] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const bool whole = fault == std::errc() && end == digits.data() + digits.size();
  return whole && value <= kMaxShards ? std::optional(value) : std::nullopt;
}

std::optional<NumberedName> parse_name(std::string_view name) {
  constexpr std::string_view kOf = "-of-";
  constexpr std::string_view kExtension = ".safetensors";
  const std::size_t of = name.rfind(kOf);
  if (of == std::string_view::npos || !name.ends_with(kExtension) ||
      name.size() < of + kOf.size() + kExtension.size()) {
    return std::nullopt;
  }
  const std::string_view total =
      name.substr(of + kOf.size(), name.size() - of - kOf.size() - kExtension.size());
  const std::size_t dash = name.substr(0, of).find_last_not_of("0123456789");
  const std::size_t begin = dash == std::string_view::npos ? 0 : dash + 1;
  const auto number = parse_number(name.substr(begin, of - begin));
  const auto count = parse_number(total);
  if (!number.has_value() || !count.has_value()) {
    return std::nullopt;
  }
  return NumberedName{.stem = name.substr(0, begin),
                      .tail = name.substr(of),
                      .digits = of - begin,
                      .number = *number,
                      .total = *count};
}

}  // namespace

AbsentShards absent_shards(const std::vector<std::string>& names) {
  std::optional<NumberedName> pattern;
  std::vector<bool> present;
  for (const std::string& name : names) {
    const auto parsed = parse_name(name);
    if (!parsed.has_value()) {
      continue;
    }
    if (!pattern.has_value()) {
      pattern = parsed;
      present.resize(parsed->total + 1, false);
    }
    const bool same = parsed->stem == pattern->stem && parsed->tail == pattern->tail;
    if (same && parsed->number < present.size()) {
      present[parsed->number] = true;
    }
  }
  AbsentShards absent;
  for (std::size_t number = 1; number < present.size(); ++number) {
    if (present[number]) {
      continue;
    }
    if (absent.count++ == 0) {
      std::string digits = std::to_string(number);
      digits.insert(0, pattern->digits - std::min(pattern->digits, digits.size()), '0');
      absent.first.assign(pattern->stem).append(digits).append(pattern->tail);
    }
  }
  return absent;
}

}  // namespace k3::io

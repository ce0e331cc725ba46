// The tokenizer once more, slow and simple: the rules as patterns for a matcher that backtracks, and
// merging by search. It shares the classes of characters with the real one, nothing else.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace k3::test {

// Byte strings and their ranks.
using Ranks = std::map<std::string, std::int32_t, std::less<>>;

[[nodiscard]] std::vector<std::string> reference_split(std::string_view text);
[[nodiscard]] std::vector<std::int32_t> reference_merge(std::string_view piece, const Ranks& ranks);
[[nodiscard]] std::vector<std::int32_t> reference_encode(std::string_view text, const Ranks& ranks);

}  // namespace k3::test

// Token ids as the user types them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace k3::cli {

// Digits separated by single commas, nothing else: "1,2,3". Throws Error(kUsage) that quotes the
// part that is wrong: an empty list or entry, another character, a number of 2^31 or more.
[[nodiscard]] std::vector<std::int32_t> parse_ids(std::string_view text);

// The same the other way round: "1,2,3".
[[nodiscard]] std::string join_ids(const std::vector<std::int32_t>& ids);

// Throws Error(kUsage) naming the flag and the first of its ids that is not below `vocab_size`.
void check_ids(const std::vector<std::int32_t>& ids,
               std::size_t vocab_size,
               const std::string& flag);

}  // namespace k3::cli

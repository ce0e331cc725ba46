// The special ids of tokenizer_config.json.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "k3/tokenizer.h"

namespace k3::text {

inline constexpr std::size_t kSpecialTokens = 256;  // ids that follow the ranks

struct SpecialTokens {
  std::vector<std::string> names;     // of kSpecialTokens ids, all different
  std::vector<std::int32_t> end_ids;  // of the config's eos_token and of "<|end_of_msg|>"
};

// Reads the config: `added_tokens_decoder` names ids of `first` to first + 255, the others are named
// "<|reserved_token_{id}|>". `vocabulary` is the file whose ranks end before `first`. Throws
// Error(kUserFile) naming the file and the line or key.
[[nodiscard]] SpecialTokens read_special_tokens(const NamedText& config,
                                                std::size_t first,
                                                const std::string& vocabulary);

}  // namespace k3::text

// Where a tokenizer's files lie.
#pragma once

#include <filesystem>
#include <optional>

#include "k3/tokenizer.h"

namespace k3 {

// The folder to take a tokenizer from: the one that the user chose (--tok), else that of the
// environment variable K3_TOK_FILES unless it is empty, else the model's.
[[nodiscard]] std::filesystem::path tokenizer_directory(
    const std::optional<std::filesystem::path>& chosen, const std::filesystem::path& model_dir);

// Reads tiktoken.model and tokenizer_config.json of a folder. Throws Error(kUserFile) naming the
// file that is missing, unreadable or wrong.
[[nodiscard]] Tokenizer load_tokenizer(const std::filesystem::path& directory);

}  // namespace k3

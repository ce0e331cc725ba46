// Where the prompt comes from.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "k3/tokenizer.h"

#include "cli/command_line.h"

namespace k3::cli {

struct PromptSource {
  // Empty for a chat, whose turns come later, and where a saved sequence goes on by itself.
  std::vector<std::int32_t> ids;
  // Not there with --ids, and without a prompt only where one is named or lies in the folder.
  std::optional<Tokenizer> tokenizer;
};

// Reads the prompt and loads the tokenizer that it needs. Throws Error(kUserFile) for a file that
// cannot be read or a vocabulary that cannot be accepted, Error(kUsage) for an empty prompt.
[[nodiscard]] PromptSource read_prompt(const CommandLine& command);

// The bytes of --prompt-file, "-" being standard input. Throws Error(kUserFile), or
// Error(kInterrupted) when Ctrl-C ended the wait for input.
[[nodiscard]] std::string read_prompt_file(const std::filesystem::path& path);

// Throws Error(kUserFile) when the ids of the tokenizer are not those of the model.
void check_vocabulary(const Tokenizer& tokenizer, std::size_t vocab_size);

}  // namespace k3::cli

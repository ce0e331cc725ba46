// Tokenizers for tests, and the contents of their files.
#pragma once

#include <filesystem>
#include <string>

#include "k3/tokenizer.h"

#include "support/tokenizer_reference.h"

namespace k3::test {

// The two files of a tokenizer, as their bytes.
struct TokenizerFiles {
  std::string model;
  std::string config;

  [[nodiscard]] Tokenizer load() const {
    return {{.text = model, .name = "tiktoken.model"},
            {.text = config, .name = "tokenizer_config.json"}};
  }

  [[nodiscard]] Ranks ranks() const;
};

// Of a folder that holds them; throws std::runtime_error when it does not.
[[nodiscard]] TokenizerFiles read_tokenizer_files(const std::filesystem::path& directory);

// The vocabulary of the project (tests/fixtures/tokenizer): 768 ranks.
[[nodiscard]] TokenizerFiles small_tokenizer_files();

// The vocabulary of the 256 bytes alone (tests/fixtures/tokenizer/bytes): 512 ids, as the model demo.
[[nodiscard]] TokenizerFiles byte_tokenizer_files();

// The folder of the released vocabulary: K3_TOK_FILES, else ../shared/kimi-k3-tokenizer; empty when
// neither is there.
[[nodiscard]] std::filesystem::path released_tokenizer_directory();

// A file as its bytes; throws std::runtime_error.
[[nodiscard]] std::string read_bytes(const std::filesystem::path& path);

}  // namespace k3::test

// Chats with their ids: of the project's fixtures and of others.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "k3/chat.h"

namespace k3::test {

struct ChatCase {
  std::string name;
  ChatHistory chat;   // options with the effort and the prefix
  std::string lines;  // the same as the lines of a history file, without these two
  std::string text;   // the rendering with its markers spelled out
  std::vector<std::int32_t> ids;
};

// tests/fixtures/tokenizer/chats.json
[[nodiscard]] std::vector<ChatCase> chat_fixtures();

// A file of others: cases by name; names with a leading underscore are remarks.
[[nodiscard]] std::vector<ChatCase> chat_goldens(const std::filesystem::path& path);

}  // namespace k3::test

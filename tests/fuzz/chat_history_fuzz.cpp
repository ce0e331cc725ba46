// Any bytes as a history: refused by an Error that names the line, or read, and written in a form
// that is stable when read again.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "k3/chat.h"

namespace {

void require(bool holds) {
  if (!holds) {
    std::abort();  // libFuzzer reports the input
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  k3::ChatHistory history;
  try {
    history = k3::read_chat_history({.text = text, .name = "fuzz.jsonl"});
  } catch (const k3::Error& error) {
    require(error.kind() == k3::ErrorKind::kUserFile);
    require(std::string_view(error.what()).find("fuzz.jsonl, line ") != std::string_view::npos);
    return 0;
  }
  std::string lines;
  for (const k3::ChatMessage& message : history.messages) {
    const std::string line = k3::write_chat_message(message);
    require(line.find('\n') == std::string::npos);
    lines += line + "\n";
  }
  const k3::ChatHistory again = k3::read_chat_history({.text = lines, .name = "again"});
  require(again.messages.size() == history.messages.size());
  std::string once_more;
  for (const k3::ChatMessage& message : again.messages) {
    once_more += k3::write_chat_message(message) + "\n";
  }
  require(once_more == lines);
  return 0;
}

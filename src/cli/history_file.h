// The file of --history: a conversation as JSON lines (docs/chat.md).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "k3/chat.h"

namespace k3::cli {

class HistoryFile {
 public:
  // Reads the file, which need not be there yet. Throws Error(kUserFile) when it cannot be read or is
  // malformed, naming the line.
  explicit HistoryFile(std::filesystem::path path);

  // Throws Error(kUsage) when it cannot be written.
  void require_writable() const;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  // The conversation that the file held when it was read.
  [[nodiscard]] const ChatHistory& conversation() const { return conversation_; }

  // Adds lines, each with its end, behind the others: the file has all of them or none. Throws
  // Error(kIo) when it cannot be written, Error(kUserFile) when somebody else has changed it.
  void append(std::string_view lines);

 private:
  std::filesystem::path path_;
  std::string content_;
  ChatHistory conversation_;
};

}  // namespace k3::cli

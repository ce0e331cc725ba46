// The flags of prompts that are text, chats, sampling and stops.
#pragma once

#include <string>
#include <vector>

#include "cli/command_line.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's
class App;
}

namespace k3::cli {

// As the parser fills them, before they become part of a CommandLine.
struct TextFlags {
  std::string ids;
  std::string prompt;
  std::string prompt_file;
  std::string tok;
  std::string system;
  std::string history;
  std::string thinking;
  std::string context;
  std::string temperature;
  std::string top_p;
  std::string seed;
  std::vector<std::string> stop_ids;
  std::vector<std::string> stops;
  bool chat = false;
  bool print_ids = false;
  bool quiet = false;
  bool no_progress = false;
};

// Declare the flags of their group; `flags` must outlive the parsing.
void add_prompt_flags(CLI::App& app, TextFlags& flags);
void add_sampling_flags(CLI::App& app, TextFlags& flags);
void add_output_flags(CLI::App& app, TextFlags& flags);

// Fills what the flags say into `command`. Throws Error(kUsage): not exactly one prompt (with
// --load-state more than one), a value that makes no sense, flags that contradict each other.
void finish_text_flags(const CLI::App& app, const TextFlags& flags, CommandLine& command);

}  // namespace k3::cli

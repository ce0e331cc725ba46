// What the user asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "k3/chat.h"
#include "k3/memory.h"
#include "k3/sampling.h"

namespace k3::cli {

struct CommandLine {
  std::filesystem::path model_dir;  // may be empty with --print-ids

  // prompt: ids, a text, a file or a chat; with load_state there may be none
  std::vector<std::int32_t> ids;
  std::optional<std::string> prompt;
  std::optional<std::filesystem::path> prompt_file;  // "-" is standard input
  std::optional<std::filesystem::path> tok;
  std::optional<std::string> system;
  std::optional<std::filesystem::path> history;
  Thinking thinking = Thinking::kMax;
  std::optional<std::size_t> context;  // tokens that the chat may reach
  bool chat = false;

  // memory
  MemoryOptions memory;  // budgets alone
  std::optional<std::filesystem::path> trunk;
  std::size_t readers = 0;  // 0: calibrated

  // generation
  std::size_t gen = 8;
  Sampling sampling;
  std::vector<std::int32_t> stop_ids;
  std::vector<std::string> stops;  // none is empty
  std::optional<std::filesystem::path> save_state;
  std::optional<std::filesystem::path> load_state;
  std::size_t chunk = 0;  // 0: from the memory plan
  int threads = 0;        // 0: chosen by the engine
  bool gen_given = false;
  bool seed_given = false;
  bool full_recompute = false;

  // diagnostics
  std::optional<std::filesystem::path> config;
  std::optional<std::size_t> layers;
  std::filesystem::path out = "k3_run.json";
  std::optional<std::filesystem::path> dump_logits;
  bool out_given = false;
  bool tf_check = false;
  bool print_ids = false;
  bool quiet = false;
  bool progress = true;
};

// A command line, or the text and status that end the program at once (--help, --version, errors).
struct ParseResult {
  std::optional<CommandLine> command;
  std::string text;
  int status = 0;  // 0: `text` belongs on standard output, else on standard error
};

[[nodiscard]] ParseResult parse_command_line(int argc, const char* const* argv);

}  // namespace k3::cli

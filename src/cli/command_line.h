// What the user asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace k3::cli {

struct CommandLine {
  std::filesystem::path model_dir;

  // prompt
  std::vector<std::int32_t> ids;

  // generation
  std::size_t gen = 8;
  bool full_recompute = false;
  std::size_t chunk = 64;
  int threads = 0;  // 0: chosen by the engine

  // diagnostics
  std::optional<std::filesystem::path> config;
  std::optional<std::size_t> layers;
  std::filesystem::path out = "k3_run.json";
  bool out_given = false;
  std::optional<std::filesystem::path> dump_logits;
  bool tf_check = false;
};

// A command line, or the text and status that end the program at once (--help, --version, errors).
struct ParseResult {
  std::optional<CommandLine> command;
  std::string text;
  int status = 0;  // 0: `text` belongs on standard output, else on standard error
};

[[nodiscard]] ParseResult parse_command_line(int argc, const char* const* argv);

}  // namespace k3::cli

#include "cli/command_line.h"

#include <charconv>
#include <limits>
#include <sstream>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>

#include "k3/errors.h"
#include "k3/version.h"

#include "cli/id_list.h"

namespace k3::cli {
namespace {

constexpr int kMaxThreads = 1024;

// The options as CLI11 fills them, before they become a CommandLine.
struct RawOptions {
  CommandLine command;
  std::string ids;
  std::string config;
  std::string dump_logits;
  std::size_t layers = 0;
  bool incremental = false;
};

// A whole number from 1 to `most`, digits alone: CLI11 would take "1e3" for an error without a reason
// and a number beyond 2^64 for the largest there is.
template <typename T>
CLI::Option* add_count(CLI::App& app, const std::string& name, T& value, T most, std::string help) {
  const auto read = [&value, name, most](const std::string& text) {
    T number = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool whole = result.ec == std::errc() && result.ptr == text.data() + text.size();
    if (!whole || number < 1 || number > most) {
      const bool bounded = most != std::numeric_limits<T>::max();
      throw CLI::ValidationError(
          name, "expected a whole number from 1" +
                    (bounded ? " to " + std::to_string(most) : std::string(" on")) + ", found \"" +
                    text + "\"");
    }
    value = number;
  };
  return app.add_option_function<std::string>(name, read, std::move(help))->type_name("N");
}

void add_prompt_options(CLI::App& app, RawOptions& raw) {
  app.add_option("--ids", raw.ids, "Token ids: digits separated by commas, each below V")
      ->type_name("1,2,3")
      ->required()
      ->group("Prompt");
}

void add_generation_options(CLI::App& app, RawOptions& raw) {
  CommandLine& command = raw.command;
  constexpr std::size_t kAny = std::numeric_limits<std::size_t>::max();
  add_count(app, "--gen", command.gen, kAny, "Tokens to generate, at least 1")
      ->default_str(std::to_string(command.gen))
      ->group("Generation");
  CLI::Option* incremental =
      app.add_flag("--incremental", raw.incremental, "Run only new tokens at each step (default)")
          ->group("Generation");
  app.add_flag("--full-recompute", command.full_recompute,
               "Run the whole prefix again at each step, for verification")
      ->excludes(incremental)
      ->group("Generation");
  add_count(app, "--chunk", command.chunk, kAny, "Prompt tokens that pass the layers together")
      ->default_str(std::to_string(command.chunk))
      ->group("Generation");
  add_count(app, "--threads", command.threads, kMaxThreads,
            "Threads; by default OMP_NUM_THREADS or the physical cores the process may use")
      ->group("Generation");
}

void add_diagnostic_options(CLI::App& app, RawOptions& raw) {
  CommandLine& command = raw.command;
  app.add_option("--config", raw.config, "Config to use instead of <model_dir>/config.json")
      ->type_name("PATH")
      ->group("Diagnostics");
  add_count(app, "--layers", raw.layers, std::numeric_limits<std::size_t>::max(),
            "Run the first N layers only; the shards of later ones may be missing")
      ->group("Diagnostics");
  app.add_option("--out", command.out, "Where the JSON record of the run goes")
      ->type_name("FILE")
      ->capture_default_str()
      ->group("Diagnostics");
  app.add_option("--dump-logits", raw.dump_logits,
                 "Write the logits of the last prompt position: V float32, little-endian")
      ->type_name("FILE")
      ->group("Diagnostics");
  app.add_flag(
         "--tf-check", command.tf_check,
         "Teacher forcing: count where the model predicts the next of --ids; generates nothing")
      ->group("Diagnostics");
}

CommandLine finish(const CLI::App& app, RawOptions&& raw) {
  CommandLine command = std::move(raw.command);
  command.ids = parse_ids(raw.ids);
  command.out_given = app.count("--out") > 0;
  if (app.count("--config") > 0) {
    command.config = raw.config;
  }
  if (app.count("--layers") > 0) {
    command.layers = raw.layers;
  }
  if (app.count("--dump-logits") > 0) {
    command.dump_logits = raw.dump_logits;
  }
  if (command.tf_check && command.ids.size() < 2) {
    throw Error(ErrorKind::kUsage,
                "--tf-check needs at least two ids: it compares each prediction "
                "with the id that follows");
  }
  if (command.tf_check && command.dump_logits) {
    throw Error(ErrorKind::kUsage,
                "--tf-check and --dump-logits contradict each other: teacher "
                "forcing has no first step");
  }
  return command;
}

}  // namespace

ParseResult parse_command_line(int argc, const char* const* argv) {
  CLI::App app("Runs the Kimi K3 text model on one CPU.", "k3");
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  RawOptions raw;
  std::string model_dir;
  app.set_version_flag("--version", std::string("k3 ") + kVersion);
  app.add_option("model_dir", model_dir, "Checkpoint directory: config.json and *.safetensors")
      ->required();
  add_prompt_options(app, raw);
  add_generation_options(app, raw);
  add_diagnostic_options(app, raw);
  app.footer(
      "Exit status: 0 done; 1 the run failed; 2 usage or config; 4 a routed expert could not "
      "be read; 130 interrupted.");
  const int usage_status = exit_status(ErrorKind::kUsage);
  try {
    app.parse(argc, argv);
    raw.command.model_dir = model_dir;
    return {finish(app, std::move(raw)), "", 0};
  } catch (const CLI::ParseError& error) {
    std::ostringstream out;
    std::ostringstream err;
    const int status = app.exit(error, out, err);
    return {std::nullopt, status == 0 ? out.str() : "k3: " + err.str(),
            status == 0 ? 0 : usage_status};
  } catch (const Error& error) {
    return {std::nullopt, std::string("k3: ") + error.what() + "\n", usage_status};
  }
}

}  // namespace k3::cli

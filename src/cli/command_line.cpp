#include "cli/command_line.h"

#include <charconv>
#include <iomanip>
#include <limits>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "k3/errors.h"
#include "k3/version.h"

#include "cli/text_flags.h"

namespace k3::cli {
namespace {

constexpr int kMaxThreads = 1024;
constexpr double kGigabyte = 1e9;

// The options as CLI11 fills them, before they become a CommandLine.
struct RawOptions {
  CommandLine command;
  TextFlags text;
  std::string config;
  std::string dump_logits;
  std::string preset;
  std::string trunk;
  std::string save_state;
  std::string load_state;
  std::uint64_t ram = 0;
  std::uint64_t trunk_bytes = 0;
  std::uint64_t cache_bytes = 0;
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

// GB of 10^9 bytes, above 0.
CLI::Option* add_gigabytes(CLI::App& app,
                           const std::string& name,
                           std::uint64_t& bytes,
                           std::string help) {
  const auto read = [&bytes, name](const std::string& text) {
    constexpr double kMost = 1e6;
    double value = 0.0;
    const auto result =
        std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
    const bool whole = result.ec == std::errc() && result.ptr == text.data() + text.size();
    if (!whole || !(value > 0.0 && value <= kMost)) {
      throw CLI::ValidationError(
          name, "expected GB (10^9 bytes) above 0, at most 1000000, found \"" + text + "\"");
    }
    bytes = static_cast<std::uint64_t>(value * kGigabyte);
  };
  return app.add_option_function<std::string>(name, read, std::move(help))
      ->type_name("GB")
      ->group("Memory");
}

void add_memory_options(CLI::App& app, RawOptions& raw) {
  CLI::Option* const ram =
      add_gigabytes(app, "--ram", raw.ram, "Memory of the whole process; the planner splits it");
  std::vector<std::string> names = {"auto"};
  for (const MemoryPreset& preset : memory_presets()) {
    names.emplace_back(preset.name);
  }
  app.add_option("--preset", raw.preset,
                 "Budgets by name, see --list-presets; auto takes 95% of what is available")
      ->check(CLI::IsMember(names))
      ->type_name("NAME")
      ->default_str("auto")
      ->excludes(ram)
      ->group("Memory");
  app.add_option("--trunk", raw.trunk, "Directory of a packed trunk (trunk.bin, trunk.json)")
      ->type_name("DIR")
      ->group("Memory");
  add_gigabytes(app, "--trunk-gb", raw.trunk_bytes, "Trunk in memory: pinned tiles and the ring");
  add_gigabytes(app, "--cache-gb", raw.cache_bytes, "Slots for routed experts");
  app.add_flag("--ultra-low-memory", raw.command.memory.ultra_low_memory,
               "The smallest ring; with --full-recompute one state for all layers")
      ->group("Memory");
  constexpr std::size_t kMostReaders = 256;
  add_count(app, "--readers", raw.command.readers, kMostReaders,
            "Threads that read, for each device; calibrated by default")
      ->group("Memory");
}

// Budgets in the order of the command line: a later flag wins.
void set_budgets(const CLI::App& app, const RawOptions& raw, MemoryOptions& memory) {
  for (const CLI::Option* option : app.parse_order()) {
    const std::string name = option->get_name();
    if (name == "--ram") {
      memory.total_bytes = raw.ram;
    } else if (name == "--trunk-gb") {
      memory.trunk_bytes = raw.trunk_bytes;
    } else if (name == "--cache-gb") {
      memory.cache_bytes = raw.cache_bytes;
    } else if (name == "--preset") {
      const MemoryPreset* const preset = find_memory_preset(raw.preset);
      memory.trunk_bytes.reset();
      memory.cache_bytes.reset();
      if (preset != nullptr) {
        memory.trunk_bytes = static_cast<std::uint64_t>(preset->trunk_gb * kGigabyte);
        memory.cache_bytes = static_cast<std::uint64_t>(preset->cache_gb * kGigabyte);
        memory.ultra_low_memory = memory.ultra_low_memory || preset->name == "ultra";
      }
    }
  }
}

std::string list_presets() {
  std::ostringstream text;
  text << "PRESET        TRUNK GB  CACHE GB\n";
  text << std::fixed << std::setprecision(2);
  for (const MemoryPreset& preset : memory_presets()) {
    text << std::left << std::setw(12) << preset.name << std::right << std::setw(10)
         << preset.trunk_gb << std::setw(10) << preset.cache_gb << "\n";
  }
  text << "auto          95% of the memory that is available, trunk first (default)\n";
  return text.str();
}

void add_generation_options(CLI::App& app, RawOptions& raw) {
  CommandLine& command = raw.command;
  constexpr std::size_t kAny = std::numeric_limits<std::size_t>::max();
  add_count(app, "--gen", command.gen, kAny,
            "Tokens to generate, at least 1; in a chat until an end id")
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
      ->default_str("from the memory plan")
      ->group("Generation");
  app.add_option("--save-state", raw.save_state,
                 "Save the sequence at the end of the run, to go on with it later")
      ->type_name("FILE")
      ->group("Generation");
  app.add_option("--load-state", raw.load_state,
                 "Go on with a saved sequence; the prompt, if there is one, continues it")
      ->type_name("FILE")
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

// What cannot be saved or resumed: a chat has its history, the other runs keep no session.
void finish_states(const CLI::App& app, const RawOptions& raw, CommandLine& command) {
  for (const char* state : {"--save-state", "--load-state"}) {
    for (const char* other : {"--chat", "--full-recompute", "--tf-check", "--print-ids"}) {
      if (app.count(state) > 0 && app.count(other) > 0) {
        throw Error(ErrorKind::kUsage, std::string(state) + " and " + other +
                                           " contradict each other: a state is that of one "
                                           "sequence, generated incrementally");
      }
    }
  }
  if (app.count("--save-state") > 0) {
    command.save_state = raw.save_state;
  }
  if (app.count("--load-state") > 0) {
    command.load_state = raw.load_state;
  }
}

CommandLine finish(const CLI::App& app, RawOptions&& raw) {
  CommandLine command = std::move(raw.command);
  command.out_given = app.count("--out") > 0;
  set_budgets(app, raw, command.memory);
  if (app.count("--trunk") > 0) {
    command.trunk = raw.trunk;
  }
  if (app.count("--config") > 0) {
    command.config = raw.config;
  }
  if (app.count("--layers") > 0) {
    command.layers = raw.layers;
  }
  if (app.count("--dump-logits") > 0) {
    command.dump_logits = raw.dump_logits;
  }
  finish_states(app, raw, command);
  finish_text_flags(app, raw.text, command);
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
  app.add_flag_callback(
      "--list-presets", [] { throw CLI::CallForAllHelp(); }, "List the memory presets");
  app.add_option("model_dir", model_dir, "Checkpoint directory: config.json and *.safetensors");
  add_prompt_flags(app, raw.text);
  add_memory_options(app, raw);
  add_generation_options(app, raw);
  add_sampling_flags(app, raw.text);
  add_diagnostic_options(app, raw);
  add_output_flags(app, raw.text);
  app.footer(
      "Exit status: 0 done; 1 the run failed; 2 usage or config; 4 a routed expert could not "
      "be read; 130 interrupted.");
  const int usage_status = exit_status(ErrorKind::kUsage);
  try {
    app.parse(argc, argv);
    raw.command.model_dir = model_dir;
    return {finish(app, std::move(raw)), "", 0};
  } catch (const CLI::CallForAllHelp&) {
    return {std::nullopt, list_presets(), 0};
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

#include "cli/text_flags.h"

#include <charconv>
#include <limits>
#include <utility>

#include <CLI/CLI.hpp>

#include "k3/errors.h"

#include "cli/id_list.h"

namespace k3::cli {
namespace {

constexpr const char* kPrompt =
    "Prompt (exactly one of --prompt, --prompt-file, --ids, --chat; none is needed with "
    "--load-state)";
constexpr const char* kGeneration = "Generation";
constexpr const char* kDiagnostics = "Diagnostics";

[[noreturn]] void refuse(const char* flag,
                         std::string what,
                         std::string expected,
                         const std::string& found) {
  throw Error(ErrorKind::kUsage, {.what = std::move(what),
                                  .where = flag,
                                  .expected = std::move(expected),
                                  .found = "\"" + found + "\""});
}

// The whole of `text` as a number, digits without blanks or signs in front but for a minus.
template <typename T>
T number(const char* flag, const std::string& text, const char* expected) {
  T value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size()) {
    refuse(flag, "not such a number", expected, text);
  }
  return value;
}

void finish_prompt(const CLI::App& app, const TextFlags& flags, CommandLine& command) {
  std::size_t prompts = 0;
  for (const char* flag : {"--prompt", "--prompt-file", "--ids", "--chat"}) {
    prompts += app.count(flag) > 0 ? 1U : 0U;
  }
  const bool resumed = command.load_state && prompts == 0;  // the saved sequence goes on
  if (prompts != 1 && !resumed) {
    throw Error(ErrorKind::kUsage,
                {.what = "the prompt",
                 .expected = "exactly one of --prompt, --prompt-file, --ids and --chat",
                 .found = prompts == 0 ? "none" : std::to_string(prompts) + " of them"});
  }
  if (app.count("--ids") > 0) {
    command.ids = parse_ids(flags.ids);
  }
  if (app.count("--prompt") > 0) {
    command.prompt = flags.prompt;
  }
  if (app.count("--prompt-file") > 0) {
    command.prompt_file = flags.prompt_file;
  }
  if (app.count("--tok") > 0) {
    command.tok = flags.tok;
  }
}

void finish_chat(const CLI::App& app, const TextFlags& flags, CommandLine& command) {
  command.chat = flags.chat;
  for (const char* flag : {"--system", "--history", "--thinking", "--context"}) {
    if (app.count(flag) > 0 && !flags.chat) {
      throw Error(ErrorKind::kUsage, std::string(flag) + " is for --chat");
    }
  }
  if (app.count("--system") > 0) {
    command.system = flags.system;
  }
  if (app.count("--history") > 0) {
    command.history = flags.history;
  }
  if (app.count("--thinking") > 0) {
    const std::optional<Thinking> thinking = thinking_of(flags.thinking);
    if (!thinking) {
      refuse("--thinking", "no such effort", "off, low, high or max", flags.thinking);
    }
    command.thinking = *thinking;
  }
  if (app.count("--context") > 0) {
    command.context = number<std::size_t>("--context", flags.context, "a whole number of tokens");
  }
}

// A temperature above 0 or a top-p switches sampling on, the other is then 1.
void finish_sampling(const CLI::App& app, const TextFlags& flags, CommandLine& command) {
  const bool temperature = app.count("--temperature") > 0;
  const bool top_p = app.count("--top-p") > 0;
  Sampling& sampling = command.sampling;
  if (temperature) {
    sampling.temperature =
        number<double>("--temperature", flags.temperature, "0, or a positive finite number");
  }
  if (top_p) {
    sampling.top_p = number<double>("--top-p", flags.top_p, "a number above 0, at most 1");
    if (!temperature) {
      sampling.temperature = 1.0;
    } else if (sampling.temperature == 0.0) {
      throw Error(ErrorKind::kUsage,
                  "--temperature 0 and --top-p contradict each other: at temperature 0 the token "
                  "with the largest logit is taken");
    }
  }
  sampling.check();
  if (app.count("--seed") > 0) {
    if (!temperature && !top_p) {
      throw Error(ErrorKind::kUsage,
                  "--seed without --temperature or --top-p: nothing is drawn, the token with the "
                  "largest logit is taken");
    }
    sampling.seed =
        number<std::uint64_t>("--seed", flags.seed, "a whole number from 0 to 2^64 - 1");
    command.seed_given = true;
  }
}

void finish_stops(const TextFlags& flags, CommandLine& command) {
  for (const std::string& text : flags.stop_ids) {
    const auto id = number<std::int32_t>("--stop-id", text, "a token id");
    if (id < 0) {
      refuse("--stop-id", "not such a number", "a token id", text);
    }
    command.stop_ids.push_back(id);
  }
  for (const std::string& text : flags.stops) {
    if (text.empty()) {
      throw Error(ErrorKind::kUsage, "--stop: an empty text would stop everywhere");
    }
    command.stops.push_back(text);
  }
  if (!command.stops.empty() && !command.ids.empty()) {
    throw Error(ErrorKind::kUsage,
                "--stop and --ids contradict each other: --ids loads no tokenizer, so there is no "
                "text to stop at");
  }
}

}  // namespace

void add_prompt_flags(CLI::App& app, TextFlags& flags) {
  app.add_option("--prompt", flags.prompt, "The text to continue")
      ->type_name("TEXT")
      ->group(kPrompt);
  app.add_option("--prompt-file", flags.prompt_file,
                 "The file that holds the text, taken byte for byte; - is standard input")
      ->type_name("PATH")
      ->group(kPrompt);
  app.add_option("--ids", flags.ids,
                 "Token ids: digits separated by commas, each below V; no tokenizer is loaded")
      ->type_name("1,2,3")
      ->group(kPrompt);
  app.add_flag("--chat", flags.chat,
               "Turns of a conversation, from the terminal or lines of a pipe")
      ->group(kPrompt);
  app.add_option("--system", flags.system, "The system message of the chat")
      ->type_name("TEXT")
      ->group(kPrompt);
  app.add_option("--history", flags.history,
                 "JSON lines: the chat goes on from them, each turn is appended")
      ->type_name("FILE")
      ->group(kPrompt);
  app.add_option("--thinking", flags.thinking, "How much the chat thinks: off, low, high or max")
      ->type_name("EFFORT")
      ->default_str("max")
      ->group(kPrompt);
  app.add_option("--context", flags.context,
                 "Tokens that the chat may reach; by default 4096 more than its history")
      ->type_name("N")
      ->group(kPrompt);
  app.add_option(
         "--tok", flags.tok,
         "Folder of tiktoken.model and tokenizer_config.json; by default that of K3_TOK_FILES, "
         "else the model's")
      ->type_name("DIR")
      ->group(kPrompt);
}

void add_sampling_flags(CLI::App& app, TextFlags& flags) {
  app.add_option("--temperature", flags.temperature,
                 "Draw tokens at this temperature; 0 takes the largest logit (default)")
      ->type_name("T")
      ->group(kGeneration);
  app.add_option("--top-p", flags.top_p, "Draw from the likeliest tokens that reach this share")
      ->type_name("P")
      ->group(kGeneration);
  app.add_option("--seed", flags.seed,
                 "The same seed draws the same tokens; by default a random one")
      ->type_name("N")
      ->group(kGeneration);
  // One value a flag: CLI11 would take what follows, too, and read "[a,b]" as two values.
  app.add_option("--stop-id", flags.stop_ids, "End behind this id; repeatable")
      ->type_name("N")
      ->allow_extra_args(false)
      ->take_all()
      ->group(kGeneration);
  app.add_option("--stop", flags.stops, "End before this text; repeatable")
      ->type_name("TEXT")
      ->allow_extra_args(false)
      ->take_all()
      ->group(kGeneration);
}

void add_output_flags(CLI::App& app, TextFlags& flags) {
  app.add_flag("--print-ids", flags.print_ids,
               "Print the ids of the prompt and stop; needs the tokenizer alone")
      ->group(kDiagnostics);
  app.add_flag("--quiet", flags.quiet, "Only the text on standard output")->group(kDiagnostics);
  app.add_flag("--no-progress", flags.no_progress, "No progress on standard error")
      ->group(kDiagnostics);
}

void finish_text_flags(const CLI::App& app, const TextFlags& flags, CommandLine& command) {
  finish_prompt(app, flags, command);
  finish_chat(app, flags, command);
  finish_sampling(app, flags, command);
  finish_stops(flags, command);
  command.gen_given = app.count("--gen") > 0;
  command.print_ids = flags.print_ids;
  command.quiet = flags.quiet;
  command.progress = !flags.no_progress;
  if (command.ids.empty() && (command.tf_check || (command.chat && command.dump_logits))) {
    throw Error(ErrorKind::kUsage,
                command.tf_check ? "--tf-check needs --ids" : "--dump-logits is not for --chat");
  }
  if (command.model_dir.empty() && !command.print_ids) {
    throw Error(ErrorKind::kUsage, "model_dir is missing: the folder of the checkpoint");
  }
}

}  // namespace k3::cli

#include "cli/run.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "k3/engine.h"
#include "k3/generate.h"

#include "cli/chat_loop.h"
#include "cli/command_line.h"
#include "cli/id_list.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "cli/prompt_source.h"
#include "cli/report.h"
#include "cli/run_record.h"
#include "cli/state_files.h"
#include "cli/text_output.h"

namespace k3::cli {
namespace {

// What a run writes to and listens to.
struct RunIo {
  RunRecord& record;
  StateOutput& state;
  TextSink& sink;
  Progress& progress;
  const std::atomic<bool>* stop;
};

// Tokens that the run can reach; beyond any memory it does not matter how many.
std::size_t positions_of(const CommandLine& command, std::size_t prompt_ids) {
  constexpr std::size_t kBeyondMemory = std::size_t{1} << 40U;
  const std::size_t generated = command.tf_check ? 0 : std::min(command.gen, kBeyondMemory);
  return prompt_ids + generated;
}

// But for the positions, which the prompt decides.
EngineOptions engine_options(const CommandLine& command, const std::atomic<bool>* stop) {
  MemoryOptions memory = command.memory;
  memory.chunk = command.chunk;
  memory.full_recompute = command.full_recompute;
  if (command.tf_check) {
    memory.logit_rows = command.chunk == 0 ? kTeacherForcingChunk : command.chunk;
  }
  return {.model_dir = command.model_dir,
          .config_path = command.config,
          .layers = command.layers,
          .trunk_dir = command.trunk,
          .memory = memory,
          .readers = command.readers,
          .threads = command.threads,
          .stop = stop};
}

// What the run goes on from.
struct Prompt {
  std::optional<SavedSession> saved;
  PromptSource given;             // continues what was saved
  std::vector<std::int32_t> ids;  // saved, then given
};

// Throws Error(kUserFile) for a state or a prompt file that cannot be accepted, Error(kUsage).
Prompt open_prompt(const CommandLine& command, std::size_t vocab_size) {
  Prompt prompt = {.saved = open_saved_session(command), .given = read_prompt(command), .ids = {}};
  if (prompt.given.tokenizer) {
    check_vocabulary(*prompt.given.tokenizer, vocab_size);
  }
  check_ids(prompt.given.ids, vocab_size, "--ids");
  prompt.ids = prompt.given.ids;
  if (prompt.saved) {
    const std::span<const std::int32_t> saved = prompt.saved->ids();
    prompt.ids.insert(prompt.ids.begin(), saved.begin(), saved.end());
    if (prompt.ids.size() == prompt.saved->position()) {
      refuse_user_file("--load-state " + command.load_state->string(),
                       "all of its ids have passed the layers, there is nothing to go on from",
                       "a prompt that continues it", "none");
    }
  }
  return prompt;
}

// Nothing where no state is loaded or saved: generate() opens its own.
std::optional<Session> open_session(Engine& engine,
                                    const CommandLine& command,
                                    const std::optional<SavedSession>& saved) {
  if (saved) {
    Session session = engine.load_session(*saved);
    std::printf("resumed %zu ids, position %zu, from %s\n", saved->ids().size(), saved->position(),
                command.load_state->c_str());
    return session;
  }
  return command.save_state ? std::optional(engine.new_session()) : std::nullopt;
}

// A generation whose prompt is a text shows its text as it comes and the steps afterwards; one of
// ids shows the steps as they come.
RunRecord::Content run_generation(Engine& engine,
                                  const CommandLine& command,
                                  const Prompt& prompt,
                                  const RunIo& io) {
  std::optional<Session> session = open_session(engine, command, prompt.saved);
  std::optional<TextBlock> block;
  if (prompt.given.tokenizer) {
    block.emplace(io.sink, *prompt.given.tokenizer, command.stops);
    block->begin();
  } else {
    print_step_header();
  }
  std::vector<GenerateStep> steps;
  const auto on_step = [&](const GenerateStep& step) {
    io.progress.finish();
    if (block) {
      steps.push_back(step);
    } else {
      print_step(step);
    }
  };
  const GenerateOptions options = {
      .max_new_tokens = command.gen,
      .full_recompute = command.full_recompute,
      .chunk = command.chunk,
      .sampling = command.sampling,
      .stop_ids = command.stop_ids,
      .until = [&](std::int32_t token) { return block && block->push(token); },
      .on_step = on_step,
      .on_prompt = prompt_progress(io.progress),
      .stop = io.stop};
  io.state.begin();
  const GenerateResult result = session ? generate(engine, *session, prompt.ids, options)
                                        : generate(engine, prompt.ids, options);
  io.progress.finish();
  if (block) {
    block->end();
    print_step_header();
    std::for_each(steps.begin(), steps.end(), print_step);
  } else if (command.quiet) {
    io.sink.write(join_ids(result.generated) + "\n");
  }
  print_generation(result);
  print_stop(stop_reason(result, command, block ? block->stopped() : std::nullopt));
  io.record.write_logits(result.prompt_logits);
  if (session) {
    std::vector<std::int32_t> all = prompt.ids;
    all.insert(all.end(), result.generated.begin(), result.generated.end());
    io.state.save(engine, *session, all);
  }
  const auto count = static_cast<double>(result.generated.size());
  RunRecord::Content content = {.prompt_ids = prompt.ids,
                                .generated_ids = result.generated,
                                .layers = engine.config().num_hidden_layers,
                                .seconds = result.seconds,
                                .seconds_per_token = count > 0.0 ? result.seconds / count : 0.0,
                                .interrupted = result.interrupted(),
                                .stop = stop_name(result)};
  if (prompt.saved) {
    content.resumed = {.ids = prompt.saved->ids().size(), .position = prompt.saved->position()};
  }
  return content;
}

RunRecord::Content run_teacher_forcing(Engine& engine, const CommandLine& command) {
  const auto start = std::chrono::steady_clock::now();
  const TeacherForcing result = teacher_forcing(engine, command.ids, command.chunk);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  print_teacher_forcing(result, seconds);
  return {.prompt_ids = command.ids,
          .predictions = result.predictions,
          .layers = engine.config().num_hidden_layers,
          .seconds = seconds,
          .seconds_per_token = seconds / static_cast<double>(command.ids.size())};
}

// The ids of the prompt, as --ids takes them, without a model.
void print_ids(const CommandLine& command) {
  const PromptSource prompt = read_prompt(command);
  const std::vector<std::int32_t> ids =
      command.chat ? first_prompt_of_chat(*prompt.tokenizer, command) : prompt.ids;
  std::printf("%s\n", join_ids(ids).c_str());
}

RunRecord::Content run_engine(Engine& engine,
                              const CommandLine& command,
                              const Prompt& prompt,
                              const RunIo& io) {
  if (command.tf_check) {
    return run_teacher_forcing(engine, command);
  }
  const bool drawn = command.sampling.temperature > 0.0;
  if (drawn) {
    print_sampling(command.sampling);
  }
  RunRecord::Content content =
      command.chat
          ? run_chat({engine, *prompt.given.tokenizer, command, io.sink, io.progress, io.stop})
          : run_generation(engine, command, prompt, io);
  if (drawn) {
    content.sampling = command.sampling;
  }
  return content;
}

int run_command(CommandLine command) {
  if (command.print_ids) {
    print_ids(command);
    finish_standard_output();
    return 0;
  }
  const std::atomic<bool>* stop = install_interrupt_handler();
  if (!command.seed_given) {
    command.sampling.seed = std::random_device()();
  }
  EngineOptions options = engine_options(command, stop);
  const std::size_t vocab_size = load_config(options).vocab_size;
  const Prompt prompt = open_prompt(command, vocab_size);
  options.memory.positions = command.chat ? chat_positions(*prompt.given.tokenizer, command)
                                          : positions_of(command, prompt.ids.size());
  check_ids(command.stop_ids, vocab_size, "--stop-id");
  RunRecord record(command);
  StateOutput state(command);
  if (!record.warning().empty()) {
    std::fprintf(stderr, "k3: warning: %s\n", record.warning().c_str());
  }
  Progress progress(Progress::standard_error(command.progress));
  TextSink sink(command.quiet);
  options.on_load = load_progress(progress);
  Engine engine(options);
  progress.finish();
  print_config(engine);
  print_load(engine);
  const RunRecord::Content content =
      run_engine(engine, command, prompt, {record, state, sink, progress, stop});
  print_statistics(engine.statistics(), content.seconds);
  print_notices(engine);
  print_peak_memory();
  record.write(content);
  sink.finish();
  finish_standard_output();
  return content.interrupted ? exit_status(ErrorKind::kInterrupted) : 0;
}

}  // namespace

int run(int argc, const char* const* argv) {
  const ParseResult parsed = parse_command_line(argc, argv);
  if (!parsed.command) {
    std::fputs(parsed.text.c_str(), parsed.status == 0 ? stdout : stderr);
  }
  try {
    if (!parsed.command) {
      finish_standard_output();
      return parsed.status;
    }
    return run_command(*parsed.command);
  } catch (const Error& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "k3: %s\n", error.what());
    return exit_status(error.kind());
  } catch (const std::exception& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "k3: internal error: %s\n", error.what());
    return 1;
  }
}

}  // namespace k3::cli

#include "cli/run.h"

#include <chrono>
#include <cstdio>
#include <exception>

#include "k3/engine.h"
#include "k3/generate.h"

#include "cli/command_line.h"
#include "cli/id_list.h"
#include "cli/interrupt.h"
#include "cli/report.h"
#include "cli/run_record.h"

namespace k3::cli {
namespace {

EngineOptions engine_options(const CommandLine& command, const std::atomic<bool>* stop) {
  return {.model_dir = command.model_dir,
          .config_path = command.config,
          .layers = command.layers,
          .threads = command.threads,
          .stop = stop};
}

RunRecord::Content run_generation(Engine& engine,
                                  const CommandLine& command,
                                  const std::atomic<bool>* stop,
                                  RunRecord& record) {
  print_step_header();
  const GenerateResult result = generate(engine, command.ids,
                                         {.max_new_tokens = command.gen,
                                          .full_recompute = command.full_recompute,
                                          .chunk = command.chunk,
                                          .on_step = print_step,
                                          .stop = stop});
  print_generation(result);
  record.write_logits(result.prompt_logits);
  const auto count = static_cast<double>(result.generated.size());
  return {.prompt_ids = command.ids,
          .generated_ids = result.generated,
          .layers = engine.config().num_hidden_layers,
          .seconds_per_token = count > 0.0 ? result.seconds / count : 0.0,
          .interrupted = result.interrupted};
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
          .seconds_per_token = seconds / static_cast<double>(command.ids.size())};
}

int run_command(const CommandLine& command) {
  const std::atomic<bool>* stop = install_interrupt_handler();
  const EngineOptions options = engine_options(command, stop);
  check_ids(command.ids, load_config(options).vocab_size);
  RunRecord record(command);
  if (!record.warning().empty()) {
    std::fprintf(stderr, "k3: warning: %s\n", record.warning().c_str());
  }
  Engine engine(options);
  print_config(engine);
  print_load(engine.load_report());
  const RunRecord::Content content = command.tf_check
                                         ? run_teacher_forcing(engine, command)
                                         : run_generation(engine, command, stop, record);
  print_peak_memory();
  record.write(content);
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

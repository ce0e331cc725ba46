#include "cli/state_files.h"

#include <cstdio>

#include "cli/run_record.h"

namespace k3::cli {
namespace {

void refuse_shared(const std::filesystem::path& state,
                   const char* flag,
                   const std::filesystem::path& other) {
  if (same_file(state, other)) {
    throw Error(ErrorKind::kUsage,
                std::string(flag) + " and --save-state name the same file: " + state.string());
  }
}

}  // namespace

std::optional<SavedSession> open_saved_session(const CommandLine& command) {
  if (!command.load_state) {
    return std::nullopt;
  }
  return std::make_optional<SavedSession>(*command.load_state,
                                          "--load-state " + command.load_state->string());
}

StateOutput::StateOutput(const CommandLine& command) {
  if (!command.save_state) {
    return;
  }
  name_ = command.save_state->string();
  refuse_shared(*command.save_state, "--out", command.out);
  if (command.dump_logits) {
    refuse_shared(*command.save_state, "--dump-logits", *command.dump_logits);
  }
  file_.emplace(*command.save_state);
}

StateOutput::~StateOutput() {
  if (pending_) {
    std::fflush(stdout);
    std::fprintf(stderr, "k3: --save-state %s: not saved, the file stays as it was\n",
                 name_.c_str());
  }
}

void StateOutput::save(Engine& engine, const Session& session, std::span<const std::int32_t> ids) {
  if (!file_ || !session.intact()) {
    return;
  }
  engine.save_session(session, ids, *file_);
  pending_ = false;
  std::printf("saved %zu ids, position %zu, to %s\n", ids.size(), session.position(),
              name_.c_str());
}

}  // namespace k3::cli

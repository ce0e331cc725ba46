// The saved states that a run begins with (--load-state) and leaves (--save-state).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "k3/atomic_file.h"
#include "k3/engine.h"
#include "k3/session_file.h"

#include "cli/command_line.h"

namespace k3::cli {

// The state that --load-state names, if it does. Throws Error(kUserFile).
[[nodiscard]] std::optional<SavedSession> open_saved_session(const CommandLine& command);

// Where the state of the run goes. Does nothing without --save-state. Once the session has begun to
// run, its end without save() is told on standard error: the file stays as it was.
class StateOutput {
 public:
  // Throws Error(kUsage) for a file that cannot be written or that another output names, too.
  explicit StateOutput(const CommandLine& command);
  StateOutput(const StateOutput&) = delete;
  StateOutput& operator=(const StateOutput&) = delete;
  ~StateOutput();

  [[nodiscard]] bool wanted() const { return file_.has_value(); }

  void begin() { pending_ = wanted(); }

  // `ids` are all of the session. A session that a pass has left torn is not saved. Throws Error(kIo).
  void save(Engine& engine, const Session& session, std::span<const std::int32_t> ids);

 private:
  std::string name_;
  std::optional<AtomicFile> file_;
  bool pending_ = false;  // begun and not saved
};

}  // namespace k3::cli

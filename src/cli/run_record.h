// The files that a run leaves: the JSON record (--out) and the logits (--dump-logits).
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "k3/atomic_file.h"

#include "cli/command_line.h"

namespace k3::cli {

// Two names of one regular file, which exists or does not; devices may be shared.
[[nodiscard]] bool same_file(const std::filesystem::path& a, const std::filesystem::path& b);

// Opens both before any work, so that what cannot be written fails at once.
class RunRecord {
 public:
  // Throws Error(kUsage) for a file that the user named. When the default of --out cannot be
  // written there is no record, and warning() says why.
  explicit RunRecord(const CommandLine& command);

  [[nodiscard]] const std::string& warning() const { return warning_; }

  // A turn of a chat. The context goes on with these, one after another, but for an end id of
  // `generated_ids` other than <|end_of_msg|>.
  struct Turn {
    std::vector<std::int32_t> new_ids;  // of the user's message and what follows it
    std::vector<std::int32_t> generated_ids;
    std::vector<std::int32_t> completion_ids;  // close markers that the answer lacked
    std::size_t tokens_run = 0;                // tokens that passed the layers
  };

  // The sequence of --load-state: so many ids of it, at the front of prompt_ids, had been saved, and so
  // many of these had passed the layers.
  struct Resumed {
    std::size_t ids = 0;
    std::size_t position = 0;
  };

  // What is known of the run; written as strict JSON. Throws Error(kIo).
  struct Content {
    std::vector<std::int32_t> prompt_ids;
    std::vector<std::int32_t> generated_ids;
    std::vector<std::int32_t> predictions;  // of --tf-check; left out when empty
    std::size_t layers = 0;
    double seconds = 0.0;  // of all steps
    double seconds_per_token = 0.0;
    bool interrupted = false;
    std::optional<Resumed> resumed = {};    // with --load-state
    std::string stop = {};                  // why it ended: stop_name(); left out when empty
    std::optional<Sampling> sampling = {};  // left out when greedy
    std::vector<Turn> turns = {};           // of a chat; prompt_ids are those of its last answer
  };

  void write(const Content& content);

  // Throws Error(kIo). Does nothing without --dump-logits or logits.
  void write_logits(std::span<const float> logits);

 private:
  std::optional<AtomicFile> out_;
  std::optional<AtomicFile> logits_;
  std::string warning_;
};

}  // namespace k3::cli

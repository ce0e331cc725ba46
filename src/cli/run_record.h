// The files that a run leaves: the JSON record (--out) and the logits (--dump-logits).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "k3/atomic_file.h"

#include "cli/command_line.h"

namespace k3::cli {

// Opens both before any work, so that what cannot be written fails at once.
class RunRecord {
 public:
  // Throws Error(kUsage) for a file that the user named. When the default of --out cannot be
  // written there is no record, and warning() says why.
  explicit RunRecord(const CommandLine& command);

  [[nodiscard]] const std::string& warning() const { return warning_; }

  // What is known of the run; written as strict JSON. Throws Error(kIo).
  struct Content {
    std::vector<std::int32_t> prompt_ids;
    std::vector<std::int32_t> generated_ids;
    std::vector<std::int32_t> predictions;  // of --tf-check; left out when empty
    std::size_t layers = 0;
    double seconds_per_token = 0.0;
    bool interrupted = false;
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

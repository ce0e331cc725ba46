#include "cli/run_record.h"

#include <bit>
#include <filesystem>
#include <system_error>

#include <nlohmann/json.hpp>

#include "k3/errors.h"

namespace k3::cli {
namespace {

// Stops, sampling and turns, of the runs that have them.
void add_text_fields(nlohmann::ordered_json& record, const RunRecord::Content& content) {
  if (!content.stop.empty()) {
    record["stop"] = content.stop;
  }
  if (content.sampling) {
    record["temperature"] = content.sampling->temperature;
    record["top_p"] = content.sampling->top_p;
    record["seed"] = content.sampling->seed;
  }
  for (const RunRecord::Turn& turn : content.turns) {
    record["turns"].push_back({{"new_ids", turn.new_ids},
                               {"generated_ids", turn.generated_ids},
                               {"completion_ids", turn.completion_ids},
                               {"tokens_run", turn.tokens_run}});
  }
}

}  // namespace

bool same_file(const std::filesystem::path& a, const std::filesystem::path& b) {
  if (a.empty() || b.empty()) {
    return false;  // AtomicFile refuses it
  }
  std::error_code error;
  const bool device =
      std::filesystem::exists(a, error) && !std::filesystem::is_regular_file(a, error);
  return !device &&
         std::filesystem::weakly_canonical(std::filesystem::absolute(a, error), error) ==
             std::filesystem::weakly_canonical(std::filesystem::absolute(b, error), error);
}

RunRecord::RunRecord(const CommandLine& command) {
  try {
    out_.emplace(command.out);
  } catch (const Error& error) {
    if (command.out_given) {
      throw;
    }
    warning_ = std::string(error.what()) + "; the run leaves no record (--out names another file)";
  }
  if (command.dump_logits) {
    if (same_file(command.out, *command.dump_logits)) {
      throw Error(ErrorKind::kUsage,
                  "--out and --dump-logits name the same file: " + command.dump_logits->string());
    }
    logits_.emplace(*command.dump_logits);
  }
}

void RunRecord::write(const Content& content) {
  if (!out_) {
    return;
  }
  std::vector<std::int32_t> full = content.prompt_ids;
  full.insert(full.end(), content.generated_ids.begin(), content.generated_ids.end());
  nlohmann::ordered_json record;
  record["prompt_ids"] = content.prompt_ids;
  record["generated_ids"] = content.generated_ids;
  record["full_ids"] = full;
  record["layers"] = content.layers;
  record["seconds_per_token"] = content.seconds_per_token;
  record["interrupted"] = content.interrupted;
  if (content.resumed) {
    record["resumed_ids"] = content.resumed->ids;
    record["resumed_position"] = content.resumed->position;
  }
  if (!content.predictions.empty()) {
    record["tf_predictions"] = content.predictions;
  }
  add_text_fields(record, content);
  out_->write(record.dump(1) + "\n");
  out_->commit();
}

void RunRecord::write_logits(std::span<const float> logits) {
  static_assert(std::endian::native == std::endian::little, "the file is little-endian");
  if (logits_ && !logits.empty()) {
    logits_->write(std::as_bytes(logits));
    logits_->commit();
  }
}

}  // namespace k3::cli

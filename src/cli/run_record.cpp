#include "cli/run_record.h"

#include <bit>

#include <nlohmann/json.hpp>

#include "k3/errors.h"

namespace k3::cli {

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
  if (!content.predictions.empty()) {
    record["tf_predictions"] = content.predictions;
  }
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

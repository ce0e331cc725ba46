#include "k3/generate.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>

namespace k3 {
namespace {

class Stopwatch {
 public:
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Feeds `ids` in chunks; logits [V] receives those of the last position.
void feed(Engine& engine,
          Session& session,
          std::span<const std::int32_t> ids,
          std::size_t chunk,
          std::span<float> logits) {
  while (!ids.empty()) {
    const std::span<const std::int32_t> part = ids.first(std::min(chunk, ids.size()));
    ids = ids.subspan(part.size());
    const std::array<std::size_t, 1> last = {part.size() - 1};
    const SessionStep step{
        .session = &session,
        .tokens = part,
        .logit_rows =
            ids.empty() ? std::span<const std::size_t>(last) : std::span<const std::size_t>(),
    };
    engine.forward({&step, 1}, ids.empty() ? logits : std::span<float>());
  }
}

// The growing sequence of one generation.
class Decoder {
 public:
  Decoder(Engine& engine, std::span<const std::int32_t> prompt, const GenerateOptions& options)
      : engine_(engine),
        options_(options),
        ids_(prompt.begin(), prompt.end()),
        logits_(engine.config().vocab_size) {}

  // Runs what the next token needs and appends it.
  GenerateStep step(std::size_t index) {
    const Stopwatch watch;
    if (!session_ || options_.full_recompute) {
      session_.reset();
      session_.emplace(engine_.new_session());
    }
    const std::span<const std::int32_t> fresh =
        std::span<const std::int32_t>(ids_).subspan(session_->position());
    feed(engine_, *session_, fresh, options_.chunk, logits_);
    const std::size_t tokens_run = fresh.size();
    const std::int32_t token = argmax(logits_);
    ids_.push_back(token);
    return {index, token, watch.seconds(), tokens_run};
  }

  [[nodiscard]] const std::vector<float>& logits() const { return logits_; }

 private:
  Engine& engine_;
  const GenerateOptions& options_;
  std::optional<Session> session_;
  std::vector<std::int32_t> ids_;
  std::vector<float> logits_;
};

void check_arguments(std::span<const std::int32_t> ids, std::size_t chunk) {
  if (ids.empty()) {
    throw Error(ErrorKind::kUsage, "the prompt is empty: at least one token id is needed");
  }
  if (chunk == 0) {
    throw Error(ErrorKind::kUsage, "a chunk needs at least one token");
  }
}

bool stopped(const GenerateOptions& options) {
  return options.stop != nullptr && options.stop->load(std::memory_order_relaxed);
}

}  // namespace

std::int32_t argmax(std::span<const float> logits) {
  return static_cast<std::int32_t>(
      std::distance(logits.begin(), std::max_element(logits.begin(), logits.end())));
}

GenerateResult generate(Engine& engine,
                        std::span<const std::int32_t> prompt,
                        const GenerateOptions& options) {
  check_arguments(prompt, options.chunk);
  GenerateResult result;
  const Stopwatch watch;
  Decoder decoder(engine, prompt, options);
  try {
    for (std::size_t index = 0; index < options.max_new_tokens && !result.interrupted; ++index) {
      const GenerateStep step = decoder.step(index);
      if (index == 0) {
        result.prompt_logits = decoder.logits();
      }
      result.generated.push_back(step.token);
      if (options.on_step) {
        options.on_step(step);
      }
      result.interrupted = stopped(options);
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInterrupted) {
      throw;
    }
    result.interrupted = true;
  }
  result.seconds = watch.seconds();
  return result;
}

TeacherForcing teacher_forcing(Engine& engine,
                               std::span<const std::int32_t> ids,
                               std::size_t chunk) {
  check_arguments(ids, chunk);
  const std::size_t vocab = engine.config().vocab_size;
  Session session = engine.new_session();
  std::vector<std::size_t> rows;
  std::vector<float> logits;
  TeacherForcing result;
  for (std::size_t first = 0; first < ids.size(); first += chunk) {
    const std::span<const std::int32_t> part =
        ids.subspan(first, std::min(chunk, ids.size() - first));
    rows.resize(part.size());
    for (std::size_t row = 0; row < rows.size(); ++row) {
      rows[row] = row;
    }
    logits.resize(part.size() * vocab);
    const SessionStep step{&session, part, rows};
    engine.forward({&step, 1}, logits);
    for (std::size_t row = 0; row < part.size(); ++row) {
      result.predictions.push_back(
          argmax(std::span<const float>(logits).subspan(row * vocab, vocab)));
    }
  }
  for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
    result.agreeing += result.predictions[i] == ids[i + 1] ? 1U : 0U;
  }
  return result;
}

}  // namespace k3

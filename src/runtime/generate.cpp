#include "k3/generate.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>

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

// Layers of the chunks that are fed, told to `on_prompt`.
class ProgressOfChunks {
 public:
  ProgressOfChunks(const Engine& engine,
                   std::size_t tokens,
                   std::size_t chunk,
                   const std::function<void(const PromptProgress&)>& on_prompt)
      : on_prompt_(on_prompt), layers_(engine.config().num_hidden_layers) {
    progress_.tokens = tokens;
    progress_.chunks = tokens / chunk + (tokens % chunk == 0 ? 0 : 1);
    progress_.layers = progress_.chunks * layers_;
  }

  // What Engine::forward is to call.
  [[nodiscard]] ResidualObserver observer() {
    return [this](std::size_t layers_done, std::span<const float> /*residual*/) {
      progress_.chunk += layers_done == 0 ? 1 : 0;
      progress_.layer = layers_done;
      progress_.layers_done = (progress_.chunk - 1) * layers_ + layers_done;
      on_prompt_(progress_);
    };
  }

 private:
  const std::function<void(const PromptProgress&)>& on_prompt_;
  std::size_t layers_;
  PromptProgress progress_;
};

// Feeds `ids` in chunks; logits [V] receives those of the last position. `options.next` is what
// follows the last chunk.
void feed(Engine& engine,
          Session& session,
          std::span<const std::int32_t> ids,
          std::size_t chunk,
          std::span<float> logits,
          const ForwardOptions& options) {
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
    const NextForward within =
        ids.size() <= chunk ? NextForward::kWithLogits : NextForward::kWithoutLogits;
    engine.forward({&step, 1}, ids.empty() ? logits : std::span<float>(),
                   {.observer = options.observer, .next = ids.empty() ? options.next : within});
  }
}

// Room for as many new tokens is made beforehand; a chat's turn has no other bound.
constexpr std::size_t kReservedTokens = 65536;

// The growing sequence of one generation.
class Decoder {
 public:
  // Without a session it opens its own.
  Decoder(Engine& engine,
          Session* session,
          std::span<const std::int32_t> ids,
          const GenerateOptions& options)
      : engine_(engine),
        session_(session),
        options_(options),
        chunk_(options.chunk == 0 ? engine.memory_plan().chunk : options.chunk),
        sampler_(options.sampling),
        logits_(engine.config().vocab_size) {
    ids_.reserve(ids.size() + std::min(options.max_new_tokens, kReservedTokens));
    ids_.assign(ids.begin(), ids.end());
  }

  // Runs what the next token needs and appends it.
  GenerateStep step(std::size_t index) {
    const Stopwatch watch;
    const RunStatistics before = engine_.statistics();
    if (session_ == nullptr || options_.full_recompute) {
      own_session_.reset();
      session_ = &own_session_.emplace(engine_.new_session());
    }
    const std::span<const std::int32_t> fresh =
        std::span<const std::int32_t>(ids_).subspan(session_->position());
    run_layers(fresh, index);
    const std::size_t tokens_run = fresh.size();
    const std::int32_t token = sampler_.choose(logits_, ids_.size());
    ids_.push_back(token);
    const RunStatistics now = engine_.statistics();
    return {.index = index,
            .token = token,
            .seconds = watch.seconds(),
            .tokens_run = tokens_run,
            .read_bytes = now.read_bytes() - before.read_bytes(),
            .expert_requests = now.expert_requests - before.expert_requests,
            .expert_hits = now.expert_hits - before.expert_hits};
  }

  [[nodiscard]] const std::vector<float>& logits() const { return logits_; }

 private:
  // Logits of the last of `fresh`; tells the progress of a prompt to those who ask.
  void run_layers(std::span<const std::int32_t> fresh, std::size_t index) {
    const NextForward next = after(index);
    if (index > 0 || !options_.on_prompt) {
      feed(engine_, *session_, fresh, chunk_, logits_, {.next = next});
      return;
    }
    ProgressOfChunks progress(engine_, fresh.size(), chunk_, options_.on_prompt);
    const ResidualObserver observer = progress.observer();
    feed(engine_, *session_, fresh, chunk_, logits_, {.observer = &observer, .next = next});
  }

  // What follows the passes of a step.
  [[nodiscard]] NextForward after(std::size_t index) const {
    if (index + 1 == options_.max_new_tokens) {
      return NextForward::kNone;
    }
    const bool chunked = options_.full_recompute && ids_.size() + 1 > chunk_;
    return chunked ? NextForward::kWithoutLogits : NextForward::kWithLogits;
  }

  Engine& engine_;
  Session* session_;
  const GenerateOptions& options_;
  std::size_t chunk_;
  Sampler sampler_;
  std::optional<Session> own_session_;
  std::vector<std::int32_t> ids_;
  std::vector<float> logits_;
};

void check_prompt(std::span<const std::int32_t> ids) {
  if (ids.empty()) {
    throw Error(ErrorKind::kUsage, "the prompt is empty: at least one token id is needed");
  }
}

bool stopped(const GenerateOptions& options) {
  return options.stop != nullptr && options.stop->load(std::memory_order_relaxed);
}

void check_stop_ids(const Engine& engine, const GenerateOptions& options) {
  const std::size_t vocab = engine.config().vocab_size;
  for (const std::int32_t id : options.stop_ids) {
    if (id < 0 || static_cast<std::size_t>(id) >= vocab) {
      throw Error(ErrorKind::kUsage, {.what = "stop id out of range",
                                      .expected = "0 to " + std::to_string(vocab - 1) +
                                                  " (the vocabulary of the config)",
                                      .found = std::to_string(id)});
    }
  }
}

// What ends the generation behind this token, if anything.
std::optional<StopReason> reason_to_stop(std::int32_t token, const GenerateOptions& options) {
  if (std::find(options.stop_ids.begin(), options.stop_ids.end(), token) !=
      options.stop_ids.end()) {
    return StopReason::kStopId;
  }
  if (options.until && options.until(token)) {
    return StopReason::kUntil;
  }
  return stopped(options) ? std::optional(StopReason::kInterrupted) : std::nullopt;
}

GenerateResult run(Engine& engine,
                   Session* session,
                   std::span<const std::int32_t> ids,
                   const GenerateOptions& options) {
  check_prompt(ids);
  check_stop_ids(engine, options);
  GenerateResult result;
  const Stopwatch watch;
  Decoder decoder(engine, session, ids, options);
  try {
    std::optional<StopReason> reason;
    for (std::size_t index = 0; index < options.max_new_tokens && !reason; ++index) {
      const GenerateStep step = decoder.step(index);
      if (index == 0) {
        result.prompt_logits = decoder.logits();
      }
      result.generated.push_back(step.token);
      if (options.on_step) {
        options.on_step(step);
      }
      reason = reason_to_stop(step.token, options);
    }
    result.reason = reason.value_or(StopReason::kCap);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInterrupted) {
      throw;
    }
    result.reason = StopReason::kInterrupted;
  }
  result.seconds = watch.seconds();
  return result;
}

}  // namespace

GenerateResult generate(Engine& engine,
                        std::span<const std::int32_t> prompt,
                        const GenerateOptions& options) {
  return run(engine, nullptr, prompt, options);
}

GenerateResult generate(Engine& engine,
                        Session& session,
                        std::span<const std::int32_t> ids,
                        const GenerateOptions& options) {
  if (ids.size() <= session.position() || options.full_recompute) {
    throw std::logic_error("a session goes on with more ids than it has seen, incrementally");
  }
  return run(engine, &session, ids, options);
}

TeacherForcing teacher_forcing(Engine& engine,
                               std::span<const std::int32_t> ids,
                               std::size_t chunk) {
  check_prompt(ids);
  chunk = std::min(chunk == 0 ? kTeacherForcingChunk : chunk, engine.memory_plan().chunk);
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
    const bool last = first + part.size() == ids.size();
    engine.forward({&step, 1}, logits,
                   {.next = last ? NextForward::kNone : NextForward::kWithLogits});
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

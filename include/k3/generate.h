// The decode loop: continuation of a prompt, greedy or drawn, and teacher forcing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "k3/engine.h"
#include "k3/sampling.h"

namespace k3 {

// One generated token.
struct GenerateStep {
  std::size_t index = 0;  // counted from 0
  std::int32_t token = 0;
  double seconds = 0.0;  // of the forward passes that led to it; the first includes the prompt
  std::size_t tokens_run = 0;         // tokens that passed the layers for it
  std::uint64_t read_bytes = 0;       // weights read from disk
  std::uint64_t expert_requests = 0;  // distinct experts of every layer and pass
  std::uint64_t expert_hits = 0;      // of them, in memory when they were asked for
};

// How far the prompt is read. Its chunks pass the layers one after the other; behind the last layer of
// the last one comes the first token.
struct PromptProgress {
  std::size_t tokens = 0;       // that have to run
  std::size_t chunks = 0;       // of them
  std::size_t chunk = 0;        // that runs, counted from 1
  std::size_t layer = 0;        // that it has passed last, counted from 1; 0 where it enters
  std::size_t layers_done = 0;  // of all chunks together
  std::size_t layers = 0;       // in all: chunks times the layers of the model
};

// Why a generation ended.
enum class StopReason {
  kCap,          // max_new_tokens
  kStopId,       // the last token is one of stop_ids
  kUntil,        // `until` said so
  kInterrupted,  // `stop` became true
};

struct GenerateOptions {
  std::size_t max_new_tokens = 8;
  bool full_recompute = false;  // run the whole prefix again for every token, for verification
  std::size_t chunk = 0;        // prompt tokens that pass the layers together; 0: as planned
  Sampling sampling = {};
  std::vector<std::int32_t> stop_ids = {};  // the generation ends behind one of these
  // Called after on_step with each token: true ends the generation (a text that stops it is found).
  std::function<bool(std::int32_t token)> until = {};
  std::function<void(const GenerateStep&)> on_step = {};
  std::function<void(const PromptProgress&)> on_prompt = {};  // before the first token, per layer
  // When it becomes true, generation ends with what there is: StopReason::kInterrupted.
  const std::atomic<bool>* stop = nullptr;
};

struct GenerateResult {
  std::vector<std::int32_t> generated;
  std::vector<float> prompt_logits;  // [V], of the last prompt position
  double seconds = 0.0;              // of all steps
  StopReason reason = StopReason::kCap;

  [[nodiscard]] bool interrupted() const { return reason == StopReason::kInterrupted; }
};

// Continues `prompt` (at least one id). Throws Error(kUsage) on an id not below V, a stop id included,
// on a Sampling that makes no sense, and what Engine::forward throws, except that an interruption ends
// the loop.
[[nodiscard]] GenerateResult generate(Engine& engine,
                                      std::span<const std::int32_t> prompt,
                                      const GenerateOptions& options);

// The same for the sequence of a session, of which `ids` are all: those that the session has seen,
// which are not run again, and at least one more. The last generated token is not run: it is the
// first of those that the next call has to run. The tokens are, bit for bit, those of generate() without
// a session. Throws std::logic_error for fewer ids than the session has seen, and with
// full_recompute. A session whose generation was interrupted cannot go on.
[[nodiscard]] GenerateResult generate(Engine& engine,
                                      Session& session,
                                      std::span<const std::int32_t> ids,
                                      const GenerateOptions& options);

// Teacher forcing: predictions[i] is the model's next token after ids[0..i]; `agreeing` counts the
// i with predictions[i] == ids[i + 1], out of ids.size() - 1.
struct TeacherForcing {
  std::vector<std::int32_t> predictions;
  std::size_t agreeing = 0;
};

// Rows of logits that teacher_forcing() takes at a time unless it is told another number.
inline constexpr std::size_t kTeacherForcingChunk = 16;

[[nodiscard]] TeacherForcing teacher_forcing(Engine& engine,
                                             std::span<const std::int32_t> ids,
                                             std::size_t chunk = kTeacherForcingChunk);

}  // namespace k3

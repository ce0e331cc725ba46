// The decode loop: greedy continuation of a prompt, and teacher forcing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "k3/engine.h"

namespace k3 {

// Index of the largest logit; the lowest index on ties.
[[nodiscard]] std::int32_t argmax(std::span<const float> logits);

// One generated token.
struct GenerateStep {
  std::size_t index = 0;  // counted from 0
  std::int32_t token = 0;
  double seconds = 0.0;  // of the forward passes that led to it; the first includes the prompt
  std::size_t tokens_run = 0;  // tokens that passed the layers for it
};

struct GenerateOptions {
  std::size_t max_new_tokens = 8;
  bool full_recompute = false;  // run the whole prefix again for every token, for verification
  std::size_t chunk = 64;       // prompt tokens that pass the layers together
  std::function<void(const GenerateStep&)> on_step = {};
  // When it becomes true, generation ends with what there is; see GenerateResult::interrupted.
  const std::atomic<bool>* stop = nullptr;
};

struct GenerateResult {
  std::vector<std::int32_t> generated;
  std::vector<float> prompt_logits;  // [V], of the last prompt position
  double seconds = 0.0;              // of all steps
  bool interrupted = false;
};

// Continues `prompt` (at least one id) greedily. Throws Error(kUsage) on an id not below V and what
// Engine::forward throws, except that an interruption ends the loop.
[[nodiscard]] GenerateResult generate(Engine& engine,
                                      std::span<const std::int32_t> prompt,
                                      const GenerateOptions& options);

// Teacher forcing: predictions[i] is the model's next token after ids[0..i]; `agreeing` counts the
// i with predictions[i] == ids[i + 1], out of ids.size() - 1.
struct TeacherForcing {
  std::vector<std::int32_t> predictions;
  std::size_t agreeing = 0;
};

[[nodiscard]] TeacherForcing teacher_forcing(Engine& engine,
                                             std::span<const std::int32_t> ids,
                                             std::size_t chunk = 64);

}  // namespace k3

// Reference answers of whole checkpoints and the gates that an engine must pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "k3/engine.h"

namespace k3::test {

// What the float64 reference says of one prompt.
struct PromptAnswer {
  std::string name;
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> generated;    // greedy
  std::vector<std::int32_t> predictions;  // argmax after each position of ids + generated
  std::vector<float> logits;              // [ids + generated][V], teacher forced
  double f32_error = 0.0;                 // largest error of PyTorch in float32, over all positions

  [[nodiscard]] std::vector<std::int32_t> full_ids() const;
};

// The prompts of tests/fixtures/models/<model>.
[[nodiscard]] std::vector<PromptAnswer> fixture_answers(const std::string& model);

// The prompts of ../shared/acceptance/released-like.
[[nodiscard]] std::vector<PromptAnswer> acceptance_answers();

// Little-endian float32 of a whole file.
[[nodiscard]] std::vector<float> read_floats(const std::filesystem::path& path);

// Logits of every position [ids][V], fed in chunks of `chunk` tokens (0: all at once).
[[nodiscard]] std::vector<float> all_logits(Engine& engine,
                                            const std::vector<std::int32_t>& ids,
                                            std::size_t chunk);

// Logits against an answer: the last prompt position within 2e-5 of its largest magnitude, every
// other one within the larger of 2e-5 of the largest of all and twice the float32 error.
[[nodiscard]] testing::AssertionResult logits_pass(const std::vector<float>& logits,
                                                   const PromptAnswer& answer);

// `found` [V] against `expected` within 2e-5 of the largest magnitude expected.
[[nodiscard]] testing::AssertionResult position_passes(const std::vector<float>& found,
                                                       const std::vector<float>& expected);

}  // namespace k3::test

// One forward pass of the text model over a batch of sequences.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "k3/config.h"

#include "model/model_vectors.h"
#include "model/sequence_state.h"
#include "model/weights.h"
#include "model/workspace.h"

namespace k3::model {

// New tokens of one sequence.
struct SequenceInput {
  SequenceState* state = nullptr;
  std::span<const std::int32_t> tokens;  // at least 1, each below V
  std::span<const std::size_t>
      logit_rows;  // ascending indices into `tokens` whose logits are wanted
};

// Called with the residual [T][E] as it enters the first layer (layer 0, the embeddings) and as it
// leaves layer n - 1 (n): `layers_done`, residual.
using ResidualHook = std::function<void(std::size_t layers_done, std::span<const float> residual)>;

// Ways to look into a pass; both may be left out.
struct PassHooks {
  // Checked before every layer: when true, the pass throws Error(kInterrupted).
  const std::atomic<bool>* stop = nullptr;
  // Borrowed, since a copy may allocate; may be empty.
  const ResidualHook* on_residual = nullptr;
  NextForward next = NextForward::kWithLogits;
};

class TextModel {
 public:
  TextModel(const ModelConfig& config,
            ModelVectors vectors,
            WeightTape& tape,
            ExpertSource& experts);

  // Runs the tokens of all sequences through all layers and advances their states. Logits come in
  // the order of the sequences and of their logit_rows: [wanted][V]. A token's result depends on
  // nothing but its own sequence. Throws std::invalid_argument on an empty or repeated sequence or
  // a wrong size of `logits`; Error(kUsage) on a token id not below V; Error(kNonFinite) naming the
  // layer; Error(kInterrupted); and what the weights throw. After a throw the sequences are torn.
  // Allocates the workspace in a pass of more tokens than any before, latents where positions begin
  // a block, and else nothing.
  void forward(std::span<const SequenceInput> inputs,
               std::span<float> logits,
               const PassHooks& hooks = {});

  // Makes the workspace large enough for passes of so many tokens. Throws Error(kMemory).
  void reserve(std::size_t tokens);

  [[nodiscard]] const ModelVectors& vectors() const { return vectors_; }

 private:
  void embed(std::span<const SequenceInput> inputs);
  void run_layers(std::span<const TokenSpan> sequences,
                  std::size_t tokens,
                  const PassHooks& hooks,
                  std::size_t& stack);
  void project_logits(std::span<const SequenceInput> inputs,
                      std::size_t tokens,
                      std::size_t stack,
                      std::span<float> logits);

  const ModelConfig& config_;
  ModelVectors vectors_;
  WeightTape& tape_;
  ExpertSource& experts_;
  std::unique_ptr<Workspace> work_;
};

}  // namespace k3::model

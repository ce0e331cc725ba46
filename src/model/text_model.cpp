#include "model/text_model.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>

#include "k3/errors.h"

#include "base/float_bits.h"
#include "base/float_environment.h"
#include "base/parallel.h"
#include "kernels/norms.h"
#include "model/layer.h"

namespace k3::model {
namespace {

void check_inputs(const ModelConfig& config,
                  std::span<const SequenceInput> inputs,
                  std::size_t logits_size) {
  std::size_t wanted = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const SequenceInput& input = inputs[i];
    // Every pair is compared: a pass has few sequences, and a set would allocate.
    if (input.tokens.empty() || input.state == nullptr ||
        std::ranges::count(inputs.first(i), input.state, &SequenceInput::state) > 0) {
      throw std::invalid_argument("a sequence of a pass needs tokens and may stand in it once");
    }
    for (const std::int32_t token : input.tokens) {
      if (token < 0 || static_cast<std::size_t>(token) >= config.vocab_size) {
        throw Error(ErrorKind::kUsage, {.what = "token id out of range",
                                        .expected = "0 to " + std::to_string(config.vocab_size - 1),
                                        .found = std::to_string(token)});
      }
    }
    if (!std::ranges::is_sorted(input.logit_rows, std::ranges::less_equal()) ||
        (!input.logit_rows.empty() && input.logit_rows.back() >= input.tokens.size())) {
      throw std::invalid_argument("logit rows must ascend and lie within the tokens of the pass");
    }
    wanted += input.logit_rows.size();
  }
  if (inputs.empty() || logits_size != wanted * config.vocab_size) {
    throw std::invalid_argument("a pass needs a sequence and room for exactly the wanted logits");
  }
}

// Where the tokens of each sequence stand in the batch, into work.spans.
std::span<const TokenSpan> token_spans(std::span<const SequenceInput> inputs, Workspace& work) {
  std::size_t first = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    work.spans[i] = {inputs[i].state, first, inputs[i].tokens.size()};
    first += inputs[i].tokens.size();
  }
  return {work.spans, inputs.size()};
}

bool all_finite(std::span<const float> values) {
  constexpr std::size_t kElementsPerTask = 4096;
  std::atomic<bool> finite = true;
  parallel_ranges(values.size(), kElementsPerTask, 1, [&](std::size_t first, std::size_t last) {
    bool good = true;
    for (const float value : values.subspan(first, last - first)) {
      good = good && is_finite(value);
    }
    if (!good) {
      finite.store(false, std::memory_order_relaxed);
    }
  });
  return finite;
}

[[noreturn]] void refuse_non_finite(const std::string& where) {
  throw Error(ErrorKind::kNonFinite,
              {.what = "NaN or infinity, the weights or the file are broken", .where = where});
}

void check_stop(const PassHooks& hooks, std::size_t layer) {
  if (hooks.stop != nullptr && hooks.stop->load(std::memory_order_relaxed)) {
    throw Error(ErrorKind::kInterrupted, "interrupted before layer " + std::to_string(layer));
  }
}

void show_residual(const PassHooks& hooks,
                   std::size_t layers_done,
                   std::span<const float> residual) {
  if (hooks.on_residual != nullptr && *hooks.on_residual) {
    (*hooks.on_residual)(layers_done, residual);
  }
}

}  // namespace

TextModel::TextModel(const ModelConfig& config,
                     ModelVectors vectors,
                     WeightTape& tape,
                     ExpertSource& experts)
    : config_(config), vectors_(std::move(vectors)), tape_(tape), experts_(experts) {}

void TextModel::reserve(std::size_t tokens) {
  if (work_ == nullptr || work_->capacity() < tokens) {
    work_.reset();
    work_ = std::make_unique<Workspace>(config_, tokens);
  }
}

void TextModel::embed(std::span<const SequenceInput> inputs) {
  float* row = work_->residual;
  for (const SequenceInput& input : inputs) {
    for (const std::int32_t token : input.tokens) {
      tape_.read_embedding(static_cast<std::size_t>(token), {row, config_.hidden_size});
      row += config_.hidden_size;
    }
  }
}

void TextModel::run_layers(std::span<const TokenSpan> sequences,
                           std::size_t tokens,
                           const PassHooks& hooks,
                           std::size_t& stack) {
  const std::span<const float> residual(work_->residual, tokens * config_.hidden_size);
  if (!all_finite(residual)) {
    refuse_non_finite("embedding");
  }
  show_residual(hooks, 0, residual);
  for (std::size_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
    check_stop(hooks, layer);
    const LayerContext context{config_,   layer, vectors_.layers[layer], tape_, experts_, *work_,
                               sequences, tokens};
    decoder_layer(context, stack);
    if (!all_finite(residual)) {
      refuse_non_finite("layer " + std::to_string(layer));
    }
    show_residual(hooks, layer + 1, residual);
  }
}

void TextModel::project_logits(std::span<const SequenceInput> inputs,
                               std::size_t tokens,
                               std::size_t stack,
                               std::span<float> logits) {
  const std::size_t hidden = config_.hidden_size;
  aggregate_sources(config_, tokens, stack, vectors_.output_res, *work_);
  std::size_t wanted = 0;
  std::size_t first = 0;
  for (const SequenceInput& input : inputs) {
    for (const std::size_t row : input.logit_rows) {
      kernels::rmsnorm(work_->aggregated + (first + row) * hidden, vectors_.final_norm.data(),
                       config_.rms_norm_eps, 1, hidden, work_->normed + wanted * hidden);
      ++wanted;
    }
    first += input.tokens.size();
  }
  multiply_tiles(tape_, MatrixId{kNoIndex, TensorRole::kHead},
                 kernels::Batch{work_->normed, wanted, hidden}, work_->packed,
                 {logits.data(), config_.vocab_size});
  if (!all_finite(logits)) {
    refuse_non_finite("logits");
  }
}

void TextModel::forward(std::span<const SequenceInput> inputs,
                        std::span<float> logits,
                        const PassHooks& hooks) {
  const ScopedFloatEnvironment environment;
  check_inputs(config_, inputs, logits.size());
  std::size_t tokens = 0;
  for (const SequenceInput& input : inputs) {
    tokens += input.tokens.size();
  }
  reserve(tokens);
  for (const SequenceInput& input : inputs) {
    input.state->begin_pass();
  }
  tape_.begin_pass({.head = !logits.empty(), .next = hooks.next});
  embed(inputs);
  std::size_t stack = 0;
  run_layers(token_spans(inputs, *work_), tokens, hooks, stack);
  if (!logits.empty()) {
    project_logits(inputs, tokens, stack, logits);
  }
  for (const SequenceInput& input : inputs) {
    input.state->end_pass(input.tokens.size());
  }
}

}  // namespace k3::model

// The stages of one decoder layer. Each file of the model reads like its section of docs/numerics.md.
#pragma once

#include <cstddef>
#include <span>

#include "k3/config.h"

#include "kernels/products.h"
#include "model/model_vectors.h"
#include "model/sequence_state.h"
#include "model/weights.h"
#include "model/workspace.h"

namespace k3::model {

// What every stage of a layer works with.
struct LayerContext {
  const ModelConfig& config;
  std::size_t layer;
  const LayerVectors& vectors;
  WeightTape& tape;
  ExpertSource& experts;
  Workspace& work;
  std::span<const TokenSpan> sequences;
  std::size_t tokens;  // of all sequences

  // y[t][r] = matrix of this layer times x[t], through its tiles; y is dense: [tokens][rows].
  void multiply(
      TensorRole role, const float* x, std::size_t cols, float* y, std::size_t rows) const;
};

// A dense result: [tokens][rows].
struct DenseOutput {
  float* y = nullptr;
  std::size_t rows = 0;
};

// y[t][r] = matrix `id` times x[t], tile after tile. `scratch`: product_scratch_floats() floats.
void multiply_tiles(
    WeightTape& tape, MatrixId id, const kernels::Batch& x, float* scratch, DenseOutput out);

// Each stage reads work.normed [T][E] and leaves its result in work.branch [T][E].
void kda_attention(const LayerContext& ctx);  // numerics.md 4
void mla_attention(const LayerContext& ctx);  // numerics.md 5
void latent_moe(const LayerContext& ctx);     // numerics.md 6
void dense_mlp(const LayerContext& ctx);      // numerics.md 6, last line

// numerics.md 3. Advances work.residual [T][E] by one layer; `stack` counts the snapshots in
// work.snapshots and grows on a boundary layer.
void decoder_layer(const LayerContext& ctx, std::size_t& stack);

// work.aggregated = aggregate([snapshots..., residual]) with the folded weight [E].
void aggregate_sources(const ModelConfig& config,
                       std::size_t tokens,
                       std::size_t stack,
                       const Vector& weight,
                       Workspace& work);

}  // namespace k3::model

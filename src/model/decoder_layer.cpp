// numerics.md 3: a decoder layer with block attention residuals.

#include <algorithm>
#include <stdexcept>

#include "base/parallel.h"
#include "kernels/norms.h"
#include "model/layer.h"

namespace k3::model {
namespace {

constexpr std::size_t kElementsPerTask = 4096;

// work.normed = rmsnorm(work.aggregated, gain)
void normalise(const LayerContext& ctx, const Vector& gain) {
  kernels::rmsnorm_rows(ctx.work.aggregated, gain.data(), ctx.config.rms_norm_eps, ctx.tokens,
                        ctx.config.hidden_size, ctx.work.normed);
}

// residual = branch, or residual + branch.
void add_branch(const LayerContext& ctx, bool residual_is_none) {
  float* residual = ctx.work.residual;
  const float* branch = ctx.work.branch;
  const std::size_t count = ctx.tokens * ctx.config.hidden_size;
  parallel_ranges(count, kElementsPerTask, 1, [=](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) {
      residual[i] = residual_is_none ? branch[i] : residual[i] + branch[i];
    }
  });
}

// Pushes the residual on the stack of snapshots.
void push_snapshot(const LayerContext& ctx, std::size_t& stack) {
  const std::size_t count = ctx.tokens * ctx.config.hidden_size;
  std::copy_n(ctx.work.residual, count, ctx.work.snapshots + stack * count);
  ++stack;
}

}  // namespace

void multiply_tiles(
    WeightTape& tape, MatrixId id, const kernels::Batch& x, float* scratch, DenseOutput out) {
  const auto [y, rows] = out;
  for (std::size_t row = 0; row < rows;) {
    const Tile tile = tape.next(id);
    const std::size_t count = rows_of(tile.view());
    if (count == 0 || count > rows - row) {
      throw std::logic_error("a tile reaches beyond its matrix");
    }
    kernels::multiply(tile.view(), x, scratch, {y + row, rows});
    row += count;
  }
}

void LayerContext::multiply(
    TensorRole role, const float* x, std::size_t cols, float* y, std::size_t rows) const {
  multiply_tiles(tape, MatrixId{layer, role}, kernels::Batch{x, tokens, cols}, work.packed,
                 {y, rows});
}

void aggregate_sources(const ModelConfig& config,
                       std::size_t tokens,
                       std::size_t stack,
                       const Vector& weight,
                       Workspace& work) {
  for (std::size_t block = 0; block < stack; ++block) {
    work.sources[block] = work.snapshots + block * tokens * config.hidden_size;
  }
  work.sources[stack] = work.residual;
  const kernels::ResidualSources input{
      {work.sources, stack + 1}, weight.data(), config.rms_norm_eps, config.hidden_size};
  kernels::aggregate(input, tokens, work.scores, work.aggregated);
}

void decoder_layer(const LayerContext& ctx, std::size_t& stack) {
  const ModelConfig& config = ctx.config;
  // 1. h = r, or the aggregate of the snapshots and r
  if (stack == 0) {
    std::copy_n(ctx.work.residual, ctx.tokens * config.hidden_size, ctx.work.aggregated);
  } else {
    aggregate_sources(config, ctx.tokens, stack, ctx.vectors.attention_res, ctx.work);
  }
  // 2. a boundary layer pushes r, which becomes none
  const bool boundary = ctx.layer % config.attn_res_block_size == 0;
  if (boundary) {
    push_snapshot(ctx, stack);
  }
  // 3. r = attention(norm(h)), added to r if there is one
  normalise(ctx, ctx.vectors.input_norm);
  if (config.is_mla[ctx.layer]) {
    mla_attention(ctx);
  } else {
    kda_attention(ctx);
  }
  add_branch(ctx, /*residual_is_none=*/boundary);
  // 4. h = the aggregate of the snapshots and r; layer 0 has pushed already
  aggregate_sources(config, ctx.tokens, stack, ctx.vectors.mlp_res, ctx.work);
  // 5. r = r + mlp(norm(h))
  normalise(ctx, ctx.vectors.post_norm);
  if (config.is_dense(ctx.layer)) {
    dense_mlp(ctx);
  } else {
    latent_moe(ctx);
  }
  add_branch(ctx, /*residual_is_none=*/false);
}

}  // namespace k3::model

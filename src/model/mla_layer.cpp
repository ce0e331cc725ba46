// numerics.md 5: Gated MLA without rotation, on latents, with Wkv_b absorbed into query and output.

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "base/parallel.h"
#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/elementary.h"
#include "kernels/norms.h"
#include "model/layer.h"

namespace k3::model {
namespace {

// Normalised latent and raw k_rope of every token into the cache of its sequence.
void append_latents(const LayerContext& ctx) {
  const ModelConfig& c = ctx.config;
  for (const TokenSpan& span : ctx.sequences) {
    LatentCache& cache = span.state->latents(ctx.layer);
    const std::size_t position = span.state->position();
    cache.reserve(position + span.count);
    parallel_for(span.count, c.latent_width(), [&](std::size_t t) {
      const float* from = ctx.work.mla.kv_a + (span.first + t) * c.latent_width();
      float* to = cache.at(position + t);
      kernels::rmsnorm(from, ctx.vectors.kv_a_norm.data(), c.rms_norm_eps, 1, c.kv_lora_rank, to);
      std::copy_n(from + c.kv_lora_rank, c.qk_rope_head_dim, to + c.kv_lora_rank);
    });
  }
}

// absorbed = (Wk^T q_nope, q_rope) per head. kv_b: [heads][nope + v][latent].
void absorb_queries(const LayerContext& ctx, const MatrixView& kv_b) {
  const ModelConfig& c = ctx.config;
  const MlaScratch& w = ctx.work.mla;
  const std::size_t heads = c.num_attention_heads;
  const std::size_t work = ctx.tokens * c.qk_nope_head_dim * c.kv_lora_rank;
  parallel_for(heads, work, [&](std::size_t head) {
    const float* q = w.q + head * c.qk_head_dim();
    float* absorbed = w.absorbed + head * c.latent_width();
    const std::size_t q_stride = heads * c.qk_head_dim();
    const std::size_t stride = heads * c.latent_width();
    for (std::size_t t = 0; t < ctx.tokens; ++t) {
      float* row = absorbed + t * stride;
      std::fill_n(row, c.kv_lora_rank, 0.0F);
      std::copy_n(q + t * q_stride + c.qk_nope_head_dim, c.qk_rope_head_dim, row + c.kv_lora_rank);
    }
    const std::size_t first_row = head * (c.qk_nope_head_dim + c.v_head_dim);
    kernels::accumulate_rows(slice_rows(kv_b, first_row, c.qk_nope_head_dim),
                             {q, ctx.tokens, q_stride}, {absorbed, stride});
  });
}

void attend(const LayerContext& ctx) {
  const ModelConfig& c = ctx.config;
  for (const TokenSpan& span : ctx.sequences) {
    const kernels::LatentAttention attention{
        .blocks = span.state->latents(ctx.layer).blocks(),
        .latent = c.kv_lora_rank,
        .rope = c.qk_rope_head_dim,
        .heads = c.num_attention_heads,
        .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.qk_head_dim()))),
    };
    const std::size_t first_head = span.first * c.num_attention_heads;
    kernels::latent_attention(attention,
                              {.first_position = span.state->position(),
                               .count = span.count,
                               .q = ctx.work.mla.absorbed + first_head * c.latent_width(),
                               .scratch = ctx.work.mla.attention,
                               .context = ctx.work.mla.context + first_head * c.kv_lora_rank});
  }
}

// value = Wv context per head.
void expand_values(const LayerContext& ctx, const MatrixView& kv_b) {
  const ModelConfig& c = ctx.config;
  const MlaScratch& w = ctx.work.mla;
  const std::size_t heads = c.num_attention_heads;
  const std::size_t scratch = kernels::product_scratch_floats(c.kv_lora_rank, ctx.tokens);
  parallel_for(heads, ctx.tokens * c.v_head_dim * c.kv_lora_rank, [&](std::size_t head) {
    const std::size_t first_row = head * (c.qk_nope_head_dim + c.v_head_dim) + c.qk_nope_head_dim;
    const kernels::Batch context{w.context + head * c.kv_lora_rank, ctx.tokens,
                                 heads * c.kv_lora_rank};
    kernels::multiply_serial(slice_rows(kv_b, first_row, c.v_head_dim), context,
                             w.packed_context + head * scratch,
                             {w.value + head * c.v_head_dim, heads * c.v_head_dim});
  });
}

}  // namespace

void mla_attention(const LayerContext& ctx) {
  const ModelConfig& c = ctx.config;
  const MlaScratch& w = ctx.work.mla;
  const std::size_t heads = c.num_attention_heads;
  const std::size_t value_width = heads * c.v_head_dim;
  // 1. queries
  ctx.multiply(TensorRole::kMlaQA, ctx.work.normed, c.hidden_size, w.q_a, c.q_lora_rank);
  kernels::rmsnorm_rows(w.q_a, ctx.vectors.q_a_norm.data(), c.rms_norm_eps, ctx.tokens,
                        c.q_lora_rank, w.q_a);
  ctx.multiply(TensorRole::kMlaQB, w.q_a, c.q_lora_rank, w.q, heads * c.qk_head_dim());
  // 2. latents
  ctx.multiply(TensorRole::kMlaKvA, ctx.work.normed, c.hidden_size, w.kv_a, c.latent_width());
  append_latents(ctx);
  {
    // 3. and 4. Wkv_b is held from the query to the output
    const Tile kv_b = ctx.tape.next(MatrixId{ctx.layer, TensorRole::kMlaKvB});
    if (rows_of(kv_b.view()) != heads * (c.qk_nope_head_dim + c.v_head_dim)) {
      throw std::logic_error("kv_b must be one tile");
    }
    absorb_queries(ctx, kv_b.view());
    attend(ctx);
    expand_values(ctx, kv_b.view());
  }
  // 5. output gate, Wo
  if (c.mla_use_output_gate) {
    ctx.multiply(TensorRole::kGate, ctx.work.normed, c.hidden_size, w.gate, value_width);
    parallel_for(ctx.tokens, value_width * kernels::kTranscendentalWork, [&](std::size_t t) {
      kernels::multiply_by_sigmoid(w.gate + t * value_width, value_width,
                                   w.value + t * value_width);
    });
  }
  ctx.multiply(TensorRole::kOut, w.value, value_width, ctx.work.branch, c.hidden_size);
}

}  // namespace k3::model

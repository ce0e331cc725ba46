// Gated MLA on latents (numerics.md 5): scores and weighted sums over the cached positions.
#pragma once

#include <cstddef>
#include <span>

namespace k3::kernels {

// Positions per block of the latent cache. Blocks are aligned at position 0, and a query walks them
// in order, so that its result does not depend on the chunk that it came in.
inline constexpr std::size_t kKeyBlock = 64;

struct LatentAttention {
  std::span<const float* const> blocks;  // [block] -> [kKeyBlock][latent + rope]
  std::size_t latent = 0;                // 512
  std::size_t rope = 0;                  // 64
  std::size_t heads = 0;
  float scale = 0.0F;  // (qk_nope + qk_rope)^-0.5
};

// Floats of scratch that `queries` queries need.
[[nodiscard]] std::size_t latent_attention_scratch_floats(std::size_t latent,
                                                          std::size_t rope,
                                                          std::size_t heads,
                                                          std::size_t queries);

// Query i of `queries` stands at position first_position + i and sees positions 0 to its own.
// q: [query][head][latent + rope], kv_b absorbed. context: [query][head][latent], the
// probability-weighted latents. Per block: scores are C2 products times `scale`; the running
// maximum, denominator (double) and context are rescaled when a block raises the maximum; latents
// are added position after position by fused multiply-adds. Heads of a query are batched; queries
// and groups of heads are split over the threads.
struct AttentionQueries {
  std::size_t first_position = 0;
  std::size_t count = 0;
  const float* q = nullptr;
  float* scratch = nullptr;
  float* context = nullptr;
};

void latent_attention(const LatentAttention& attention, const AttentionQueries& queries);

}  // namespace k3::kernels

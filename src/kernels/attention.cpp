#include "kernels/attention.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/matrix_view.h"
#include "base/parallel.h"
#include "kernels/products.h"
#include "kernels/softmax.h"

namespace k3::kernels {
namespace {

// Running softmax of one query and head.
struct Running {
  float maximum = -std::numeric_limits<float>::infinity();
  double denominator = 0.0;
};

// Rescales what was summed so far to a new maximum.
void raise_maximum(float maximum, std::span<float> context, Running& running) {
  const float factor = exp_contract(running.maximum - maximum);
  running.denominator *= static_cast<double>(factor);
  for (float& value : context) {
    value *= factor;
  }
  running.maximum = maximum;
}

// Adds the first `count` positions of one block.
void attend_block(const LatentAttention& attention,
                  const float* block,
                  std::size_t count,
                  const float* query,
                  std::span<float> context,
                  Running& running) {
  const std::size_t width = attention.latent + attention.rope;
  const F32Matrix keys{block, count, width, width};
  std::array<float, kKeyBlock> buffer;
  const std::span<float> scores(buffer.data(), count);
  multiply_serial(keys, Batch{query, 1, width}, scores.data(), count);
  for (float& score : scores) {
    score *= attention.scale;
  }
  const float maximum = *std::max_element(scores.begin(), scores.end());
  if (maximum > running.maximum) {
    raise_maximum(maximum, context, running);
  }
  running.denominator += exponentiate(scores, running.maximum);
  const F32Matrix latents{block, count, attention.latent, width};
  accumulate_rows(latents, scores.data(), context.data());
}

void attend(const LatentAttention& attention,
            std::size_t positions,
            const float* query,
            std::span<float> context) {
  Running running;
  std::fill(context.begin(), context.end(), 0.0F);
  for (std::size_t first = 0; first < positions; first += kKeyBlock) {
    const std::size_t count = std::min(kKeyBlock, positions - first);
    attend_block(attention, attention.blocks[first / kKeyBlock], count, query, context, running);
  }
  const auto scale = static_cast<float>(1.0 / running.denominator);
  for (float& value : context) {
    value *= scale;
  }
}

}  // namespace

void latent_attention(const LatentAttention& attention,
                      std::size_t first_position,
                      std::size_t queries,
                      const float* q,
                      float* context) {
  const std::size_t width = attention.latent + attention.rope;
  parallel_for(queries * attention.heads, [&](std::size_t task) {
    const std::size_t positions = first_position + task / attention.heads + 1;
    attend(attention, positions, q + task * width,
           std::span<float>(context + task * attention.latent, attention.latent));
  });
}

}  // namespace k3::kernels

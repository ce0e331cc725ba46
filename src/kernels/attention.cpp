#include "kernels/attention.h"

#include <algorithm>
#include <array>
#include <limits>
#include <span>

#include "base/parallel.h"
#include "kernels/isa.h"
#include "kernels/products.h"

namespace k3::kernels {
namespace {

// Heads of one query that are multiplied together.
constexpr std::size_t kHeadGroup = 32;

// Running softmax of one head.
struct Running {
  float maximum = -std::numeric_limits<float>::infinity();
  double denominator = 0.0;
};

// One query's group of heads on its way over the key blocks.
class HeadGroup {
 public:
  // q: [head][latent + rope]; context: [head][latent].
  HeadGroup(const LatentAttention& attention,
            std::size_t heads,
            const float* q,
            float* packed,
            float* context)
      : attention_(attention), heads_(heads), packed_(packed), context_(context) {
    const std::size_t width = attention.latent + attention.rope;
    kernels().f32.pack({q, heads, width}, width, 0, heads, packed);
    std::fill_n(context, heads * attention.latent, 0.0F);
  }

  // Adds the first `count` positions of a block.
  void attend(const float* block, std::size_t count) {
    const std::size_t width = attention_.latent + attention_.rope;
    // [head][kKeyBlock], written before it is read
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init)
    std::array<float, kHeadGroup * kKeyBlock> scores;
    kernels().f32.multiply({block, count, width, width}, packed_, heads_,
                           {scores.data(), kKeyBlock});
    for (std::size_t h = 0; h < heads_; ++h) {
      weigh({scores.data() + h * kKeyBlock, count}, h);
    }
    add_weights(scores.data(), count);
    kernels().accumulate_f32({block, count, attention_.latent, width},
                             {scores.data(), heads_, kKeyBlock}, {context_, attention_.latent});
  }

  // Divides by the denominators.
  void finish() {
    for (std::size_t h = 0; h < heads_; ++h) {
      scale_context(h, static_cast<float>(1.0 / running_[h].denominator));
    }
  }

 private:
  // Scores of one head to weights relative to the running maximum, which they may raise.
  void weigh(std::span<float> scores, std::size_t head) {
    Running& running = running_[head];
    for (float& score : scores) {
      score *= attention_.scale;
    }
    const float maximum = *std::max_element(scores.begin(), scores.end());
    if (maximum > running.maximum) {
      float factor = running.maximum;
      kernels().exponentials(&factor, 1, maximum);
      running.denominator *= static_cast<double>(factor);
      scale_context(head, factor);
      running.maximum = maximum;
    }
    kernels().exponentials(scores.data(), scores.size(), running.maximum);
  }

  // Weights of all heads, [head][kKeyBlock], to their denominators.
  void add_weights(const float* weights, std::size_t count) {
    for (std::size_t first = 0; first < heads_; first += kSumRows) {
      const std::size_t heads = std::min(kSumRows, heads_ - first);
      std::array<const float*, kSumRows> rows = {};
      for (std::size_t h = 0; h < heads; ++h) {
        rows[h] = weights + (first + h) * kKeyBlock;
      }
      std::array<double, kSumRows> sums = {};
      kernels().row_sums({rows.data(), heads, count}, sums.data());
      for (std::size_t h = 0; h < heads; ++h) {
        running_[first + h].denominator += sums[h];
      }
    }
  }

  void scale_context(std::size_t head, float factor) {
    float* values = context_ + head * attention_.latent;
    for (std::size_t i = 0; i < attention_.latent; ++i) {
      values[i] *= factor;
    }
  }

  const LatentAttention& attention_;
  std::size_t heads_;
  float* packed_;
  float* context_;
  std::array<Running, kHeadGroup> running_;
};

std::size_t head_groups(std::size_t heads) {
  return (heads + kHeadGroup - 1) / kHeadGroup;
}

}  // namespace

std::size_t latent_attention_scratch_floats(std::size_t latent,
                                            std::size_t rope,
                                            std::size_t heads,
                                            std::size_t queries) {
  return queries * head_groups(heads) *
         product_scratch_floats(latent + rope, std::min(heads, kHeadGroup));
}

void latent_attention(const LatentAttention& attention, const AttentionQueries& queries) {
  const std::size_t width = attention.latent + attention.rope;
  const std::size_t groups = head_groups(attention.heads);
  const std::size_t packed_floats =
      product_scratch_floats(width, std::min(attention.heads, kHeadGroup));
  const std::size_t work = 2 * width * (queries.first_position + 1) * kHeadGroup;
  parallel_for(queries.count * groups, work, [&](std::size_t task) {
    const std::size_t query = task / groups;
    const std::size_t first_head = task % groups * kHeadGroup;
    const std::size_t heads = std::min(kHeadGroup, attention.heads - first_head);
    const std::size_t row = query * attention.heads + first_head;
    HeadGroup group(attention, heads, queries.q + row * width,
                    queries.scratch + task * packed_floats,
                    queries.context + row * attention.latent);
    const std::size_t positions = queries.first_position + query + 1;
    for (std::size_t first = 0; first < positions; first += kKeyBlock) {
      group.attend(attention.blocks[first / kKeyBlock], std::min(kKeyBlock, positions - first));
    }
    group.finish();
  });
}

}  // namespace k3::kernels

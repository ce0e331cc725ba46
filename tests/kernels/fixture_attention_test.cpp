// Latent attention against the float64 reference, which expands keys and values.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/aligned_buffer.h"
#include "kernels/attention.h"
#include "kernels/products.h"
#include "support/fixture_operation.h"
#include "support/numbers.h"

namespace k3::kernels {
namespace {

using test::close;
using Operation = test::FixtureOperation;

// The latent form of one attention case, as the model runs it.
class MlaCase {
 public:
  MlaCase(const Operation& op, const std::string& name)
      : queries_(op.extent(name + ".q_nope", 0)),
        heads_(op.extent(name + ".q_nope", 1)),
        nope_(op.extent(name + ".q_nope", 2)),
        rope_(op.extent(name + ".q_rope", 2)),
        positions_(op.extent(name + ".latent", 0)),
        latent_(op.extent(name + ".latent", 1)),
        value_(op.extent(name + ".out", 2)),
        kv_b_(op.file().floats(name + ".kv_b")) {
    build_cache(op.file().floats(name + ".latent"), op.file().floats(name + ".k_rope"));
    build_queries(op.file().floats(name + ".q_nope"), op.file().floats(name + ".q_rope"));
  }

  // The last `count` queries, in one call.
  [[nodiscard]] std::vector<float> context(std::size_t count) const {
    const std::size_t skipped = queries_ - count;
    std::vector<float> out(count * heads_ * latent_);
    const LatentAttention attention{
        .blocks = pointers_,
        .latent = latent_,
        .rope = rope_,
        .heads = heads_,
        .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(nope_ + rope_)))};
    AlignedBuffer<float> scratch(latent_attention_scratch_floats(latent_, rope_, heads_, count));
    latent_attention(attention, {.first_position = positions_ - count,
                                 .count = count,
                                 .q = absorbed_.data() + skipped * heads_ * (latent_ + rope_),
                                 .scratch = scratch.data(),
                                 .context = out.data()});
    return out;
  }

  [[nodiscard]] std::vector<float> values() const {
    const std::vector<float> all = context(queries_);
    std::vector<float> out(queries_ * heads_ * value_);
    AlignedBuffer<float> scratch(product_scratch_floats(latent_, queries_));
    for (std::size_t h = 0; h < heads_; ++h) {
      const F32Matrix rows{kv_b_.data() + (h * (nope_ + value_) + nope_) * latent_, value_, latent_,
                           latent_};
      multiply_serial(rows, Batch{all.data() + h * latent_, queries_, heads_ * latent_},
                      scratch.data(), {out.data() + h * value_, heads_ * value_});
    }
    return out;
  }

  [[nodiscard]] std::size_t queries() const { return queries_; }

 private:
  void build_cache(const std::vector<float>& latents, const std::vector<float>& ropes) {
    const std::size_t width = latent_ + rope_;
    const std::size_t count = (positions_ + kKeyBlock - 1) / kKeyBlock;
    // What lies beyond the last position must not matter.
    blocks_.assign(count, std::vector<float>(kKeyBlock * width, std::nanf("")));
    for (std::size_t p = 0; p < positions_; ++p) {
      float* row = blocks_[p / kKeyBlock].data() + (p % kKeyBlock) * width;
      std::copy_n(latents.data() + p * latent_, latent_, row);
      std::copy_n(ropes.data() + p * rope_, rope_, row + latent_);
    }
    for (const std::vector<float>& block : blocks_) {
      pointers_.push_back(block.data());
    }
  }

  void build_queries(const std::vector<float>& nope, const std::vector<float>& rope) {
    const std::size_t width = latent_ + rope_;
    absorbed_.assign(queries_ * heads_ * width, 0.0F);
    for (std::size_t i = 0; i < queries_ * heads_; ++i) {
      const F32Matrix keys{kv_b_.data() + (i % heads_) * (nope_ + value_) * latent_, nope_, latent_,
                           latent_};
      accumulate_rows(keys, Batch{nope.data() + i * nope_, 1, nope_},
                      {absorbed_.data() + i * width, width});
      std::copy_n(rope.data() + i * rope_, rope_, absorbed_.data() + i * width + latent_);
    }
  }

  std::size_t queries_, heads_, nope_, rope_, positions_, latent_, value_;
  std::vector<float> kv_b_;
  std::vector<std::vector<float>> blocks_;
  std::vector<const float*> pointers_;
  std::vector<float> absorbed_;
};

TEST(FixtureOps, MlaAttention) {
  const Operation op("mla");
  for (const std::string& c : op.cases()) {
    EXPECT_TRUE(close(MlaCase(op, c).values(), op.file().floats(c + ".out"))) << c;
  }
}

TEST(FixtureOps, MlaQueriesDoNotDependOnTheirChunk) {
  const Operation op("mla");
  for (const std::string& c : op.cases()) {
    const MlaCase attention(op, c);
    const std::vector<float> together = attention.context(attention.queries());
    const std::vector<float> last = attention.context(1);
    EXPECT_TRUE(test::same_bits(last, std::span(together).last(last.size()))) << c;
    for (const int threads : {1, 2, 3, 7}) {
      const test::ScopedThreads scope(threads);
      EXPECT_TRUE(test::same_bits(attention.context(attention.queries()), together)) << c;
    }
  }
}

}  // namespace
}  // namespace k3::kernels

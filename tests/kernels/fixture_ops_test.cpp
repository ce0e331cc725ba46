// Kernels against the float64 reference, operation by operation (tests/fixtures/ops).

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/elementary.h"
#include "kernels/kda.h"
#include "kernels/norms.h"
#include "kernels/products.h"
#include "kernels/routing.h"
#include "support/numbers.h"
#include "support/paths.h"
#include "support/safetensors_file.h"

namespace k3::kernels {
namespace {

// The cases of one operation: tensors named "<case>.<name>".
class Operation {
 public:
  explicit Operation(const std::string& name)
      : file_(test::fixture("ops/" + name + ".safetensors")) {
    for (const std::string& tensor : file_.names()) {
      cases_.insert(tensor.substr(0, tensor.find('.')));
    }
  }

  [[nodiscard]] const std::set<std::string>& cases() const { return cases_; }

  [[nodiscard]] const test::SafetensorsFile& file() const { return file_; }

  [[nodiscard]] std::size_t extent(const std::string& tensor, std::size_t axis) const {
    return static_cast<std::size_t>(file_.shape(tensor).at(axis));
  }

 private:
  test::SafetensorsFile file_;
  std::set<std::string> cases_;
};

// Within `share` of the largest magnitude expected.
testing::AssertionResult close(const std::vector<float>& found,
                               const std::vector<float>& expected,
                               double share = 2e-6) {
  return test::within(found, expected, share * test::largest_magnitude(expected));
}

TEST(FixtureOps, RmsNorm) {
  const Operation op("rmsnorm");
  for (const std::string& c : op.cases()) {
    const std::vector<float> x = op.file().floats(c + ".x");
    const std::vector<float> gain = op.file().floats(c + ".weight");
    std::vector<float> y(x.size());
    rmsnorm_rows(x.data(), gain.data(), static_cast<double>(op.file().scalar(c + ".eps")),
                 x.size() / gain.size(), gain.size(), y.data());
    EXPECT_TRUE(close(y, op.file().floats(c + ".out"), 4e-7)) << c;
  }
}

TEST(FixtureOps, L2Norm) {
  const Operation op("l2norm");
  for (const std::string& c : op.cases()) {
    std::vector<float> x = op.file().floats(c + ".x");
    const std::size_t width = op.extent(c + ".x", 1);
    for (std::size_t row = 0; row < x.size() / width; ++row) {
      l2norm(x.data() + row * width, width);
    }
    EXPECT_TRUE(close(x, op.file().floats(c + ".out"), 4e-7)) << c;
  }
}

TEST(FixtureOps, ElementaryFunctions) {
  const Operation op("elementary");
  const auto check = [](const std::vector<float>& x, const std::vector<double>& exact,
                        const auto& function, double relative) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double found = static_cast<double>(function(x[i]));
      const auto limit = static_cast<double>(std::numeric_limits<float>::max());
      if (std::fabs(exact[i]) > limit) {
        EXPECT_TRUE(std::isinf(found)) << x[i];
      } else {
        // sigmoid is 0 where the true value is denormal, and silu with it.
        EXPECT_LE(std::fabs(found - exact[i]), relative * std::fabs(exact[i]) + 0x1p-118) << x[i];
      }
    }
  };
  const std::vector<float> x = op.file().floats("all.x");
  check(x, op.file().doubles("all.sigmoid"), sigmoid_contract, 2e-7);
  check(x, op.file().doubles("all.silu"), silu_contract, 3e-7);
  check(x, op.file().doubles("all.tanh"), tanh_contract, 2e-7);
  check(op.file().floats("exp.x"), op.file().doubles("exp.exp"), exp_contract, 1.2e-7);
}

TEST(FixtureOps, SituGlu) {
  const Operation op("situ_glu");
  for (const std::string& c : op.cases()) {
    const std::vector<float> gate = op.file().floats(c + ".gate");
    const std::vector<float> up = op.file().floats(c + ".up");
    std::vector<float> out(gate.size());
    situ_glu(gate.data(), up.data(), {op.file().scalar(c + ".b1"), op.file().scalar(c + ".b2")},
             gate.size(), out.data());
    EXPECT_TRUE(close(out, op.file().floats(c + ".out"), 5e-7)) << c;
  }
}

TEST(FixtureOps, ShortConv) {
  const Operation op("shortconv");
  for (const std::string& c : op.cases()) {
    const std::size_t channels = op.extent(c + ".weight", 0);
    const std::size_t kernel = op.extent(c + ".weight", 1);
    const std::vector<float> stored = op.file().floats(c + ".weight");  // [C][K]
    std::vector<float> taps(stored.size());
    for (std::size_t i = 0; i < stored.size(); ++i) {
      taps[(i % kernel) * channels + i / kernel] = stored[i];
    }
    const std::vector<float> x = op.file().floats(c + ".x");
    std::vector<float> tail = op.file().floats(c + ".tail_in");
    std::vector<float> out(x.size());
    short_conv({kernel, channels, taps.data()}, x.size() / channels, x.data(), tail.data(),
               out.data());
    EXPECT_TRUE(close(out, op.file().floats(c + ".out"))) << c;
    EXPECT_TRUE(test::same_bits(tail, op.file().floats(c + ".tail_out"))) << c;
  }
}

TEST(FixtureOps, KdaDecay) {
  const Operation op("kda_decay");
  for (const std::string& c : op.cases()) {
    const std::size_t tokens = op.extent(c + ".z", 0);
    const std::size_t heads = op.extent(c + ".z", 1);
    const std::size_t width = op.extent(c + ".z", 2);
    std::vector<float> z = op.file().floats(c + ".z");
    std::vector<float> rate = op.file().floats(c + ".a_log");  // longer than the heads
    std::ranges::transform(rate, rate.begin(), exp_contract);
    const std::vector<float> bias = op.file().floats(c + ".dt_bias");
    const DecayGate gate{heads, width, rate.data(), bias.data(),
                         op.file().scalar(c + ".lower_bound")};
    for (std::size_t t = 0; t < tokens; ++t) {
      kda_decay(gate, z.data() + t * heads * width);
    }
    EXPECT_TRUE(close(z, op.file().floats(c + ".alpha"))) << c;
  }
}

TEST(FixtureOps, KdaStep) {
  const Operation op("kda_step");
  for (const std::string& c : op.cases()) {
    const std::size_t tokens = op.extent(c + ".q", 0);
    const std::size_t heads = op.extent(c + ".q", 1);
    const std::size_t width = op.extent(c + ".q", 2);
    const std::vector<float> q = op.file().floats(c + ".q");
    const std::vector<float> k = op.file().floats(c + ".k");
    const std::vector<float> v = op.file().floats(c + ".v");
    const std::vector<float> alpha = op.file().floats(c + ".alpha");
    const std::vector<float> beta = op.file().floats(c + ".beta");
    std::vector<float> state = op.file().floats(c + ".state_in");
    std::vector<float> out(q.size());
    std::vector<float> update(width);
    for (std::size_t i = 0; i < tokens * heads; ++i) {
      const std::size_t at = i * width;
      const KdaStep step{q.data() + at, k.data() + at, v.data() + at, alpha.data() + at, beta[i]};
      kda_step(step, width, state.data() + (i % heads) * width * width, update.data(),
               out.data() + at);
    }
    EXPECT_TRUE(close(out, op.file().floats(c + ".out"))) << c;
    EXPECT_TRUE(close(state, op.file().floats(c + ".state_out"))) << c;
  }
}

TEST(FixtureOps, KdaOutput) {
  const Operation op("kda_output");
  for (const std::string& c : op.cases()) {
    std::vector<float> o = op.file().floats(c + ".o");
    const std::vector<float> gate = op.file().floats(c + ".gate");
    const std::vector<float> gain = op.file().floats(c + ".o_norm");
    rmsnorm_rows(o.data(), gain.data(), static_cast<double>(op.file().scalar(c + ".eps")),
                 o.size() / gain.size(), gain.size(), o.data());
    multiply_by_sigmoid(gate.data(), o.size(), o.data());
    EXPECT_TRUE(close(o, op.file().floats(c + ".out"))) << c;
  }
}

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
    latent_attention(attention, positions_ - count, count,
                     absorbed_.data() + skipped * heads_ * (latent_ + rope_), out.data());
    return out;
  }

  [[nodiscard]] std::vector<float> values() const {
    const std::vector<float> all = context(queries_);
    std::vector<float> out(queries_ * heads_ * value_);
    for (std::size_t h = 0; h < heads_; ++h) {
      const F32Matrix rows{kv_b_.data() + (h * (nope_ + value_) + nope_) * latent_, value_, latent_,
                           latent_};
      multiply_serial(rows, Batch{all.data() + h * latent_, queries_, heads_ * latent_},
                      out.data() + h * value_, heads_ * value_);
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
      accumulate_rows(keys, nope.data() + i * nope_, absorbed_.data() + i * width);
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
    for (const int threads : {1, 3, 7}) {
      const test::ScopedThreads scope(threads);
      EXPECT_TRUE(test::same_bits(attention.context(attention.queries()), together)) << c;
    }
  }
}

TEST(FixtureOps, Aggregate) {
  const Operation op("aggregate");
  for (const std::string& c : op.cases()) {
    const std::size_t count = op.extent(c + ".sources", 0);
    const std::size_t tokens = op.extent(c + ".sources", 1);
    const std::size_t width = op.extent(c + ".sources", 2);
    const std::vector<float> sources = op.file().floats(c + ".sources");
    std::vector<const float*> pointers;
    for (std::size_t s = 0; s < count; ++s) {
      pointers.push_back(sources.data() + s * tokens * width);
    }
    std::vector<float> weight = op.file().floats(c + ".norm");
    const std::vector<float> projection = op.file().floats(c + ".proj");
    std::ranges::transform(weight, projection, weight.begin(), std::multiplies<>());
    std::vector<float> scores(tokens * count);
    std::vector<float> out(tokens * width);
    aggregate({pointers, weight.data(), static_cast<double>(op.file().scalar(c + ".eps")), width},
              tokens, scores.data(), out.data());
    EXPECT_TRUE(close(out, op.file().floats(c + ".out"))) << c;
  }
}

TEST(FixtureOps, Router) {
  const Operation op("router");
  for (const std::string& c : op.cases()) {
    const std::size_t tokens = op.extent(c + ".x", 0);
    const std::size_t experts = op.extent(c + ".gate", 0);
    const std::size_t width = op.extent(c + ".gate", 1);
    const auto top_k = static_cast<std::size_t>(op.file().integers(c + ".topk").at(0));
    const std::vector<float> x = op.file().floats(c + ".x");
    const std::vector<float> gate = op.file().floats(c + ".gate");
    const std::vector<float> bias = op.file().floats(c + ".bias");
    std::vector<float> scores(tokens * experts);
    multiply(F32Matrix{gate.data(), experts, width, width}, Batch{x.data(), tokens, width},
             scores.data(), experts);
    const Router router{experts, top_k, bias.data(), op.file().bytes(c + ".renormalize").at(0) != 0,
                        static_cast<double>(op.file().scalar(c + ".scaling"))};
    std::vector<std::uint32_t> chosen(tokens * top_k);
    std::vector<float> weights(tokens * top_k);
    for (std::size_t t = 0; t < tokens; ++t) {
      ASSERT_TRUE(route(router, scores.data() + t * experts, chosen.data() + t * top_k,
                        weights.data() + t * top_k));
    }
    EXPECT_EQ(std::vector<std::int32_t>(chosen.begin(), chosen.end()),
              op.file().integers(c + ".experts"))
        << c;
    EXPECT_TRUE(close(weights, op.file().floats(c + ".weights"), 1e-6)) << c;
  }
}

TEST(FixtureOps, Mxfp4Values) {
  const Operation op("mxfp4");
  for (const std::string& c : op.cases()) {
    const std::vector<std::uint8_t> packed = op.file().bytes(c + ".packed");
    const std::vector<std::uint8_t> scales = op.file().bytes(c + ".scales");
    const std::vector<float> expected = op.file().floats(c + ".out");
    const Mxfp4Matrix matrix{packed.data(),
                             scales.data(),
                             op.extent(c + ".out", 0),
                             op.extent(c + ".out", 1),
                             op.extent(c + ".packed", 1),
                             op.extent(c + ".scales", 1)};
    std::vector<float> found;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      found.push_back(mxfp4_value(matrix, i / matrix.cols, i % matrix.cols));
    }
    EXPECT_TRUE(test::same_bits(found, expected)) << c;
  }
}

// engine.md 3: errors of a product in units of the rms of its outputs.
TEST(FixtureOps, Products) {
  const Operation op("matmul");
  std::size_t mxfp4_cases = 0;
  for (const std::string& c : op.cases()) {
    const std::vector<float> x = op.file().floats(c + ".x");
    const std::size_t cols = op.extent(c + ".x", 1);
    const std::size_t rows = op.extent(c + ".out", 1);
    std::vector<std::uint16_t> bf16;
    std::vector<float> f32;
    std::vector<std::uint8_t> packed;
    std::vector<std::uint8_t> scales;
    MatrixView view;
    if (c.starts_with("bf16")) {
      bf16 = op.file().halves(c + ".weight");
      view = Bf16Matrix{bf16.data(), rows, cols, cols};
    } else if (c.starts_with("f32")) {
      f32 = op.file().floats(c + ".weight");
      view = F32Matrix{f32.data(), rows, cols, cols};
    } else {
      packed = op.file().bytes(c + ".packed");
      scales = op.file().bytes(c + ".scales");
      view =
          Mxfp4Matrix{packed.data(), scales.data(), rows, cols, (cols + 1) / 2, (cols + 31) / 32};
      ++mxfp4_cases;
    }
    std::vector<float> y(2 * rows);
    multiply(view, Batch{x.data(), 2, cols}, y.data(), rows);
    const std::vector<float> expected = op.file().floats(c + ".out");
    const std::vector<float> rms = op.file().floats(c + ".rms");
    for (std::size_t i = 0; i < y.size(); ++i) {
      const double error = std::fabs(static_cast<double>(y[i]) - static_cast<double>(expected[i]));
      EXPECT_LE(error, 1e-6 * static_cast<double>(rms[i / rows])) << c << " output " << i;
    }
  }
  EXPECT_GT(mxfp4_cases, 0U);
}

}  // namespace
}  // namespace k3::kernels

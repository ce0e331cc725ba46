// Kernels against the float64 reference, operation by operation (tests/fixtures/ops).

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/aligned_buffer.h"
#include "kernels/activation.h"
#include "kernels/elementary.h"
#include "kernels/kda.h"
#include "kernels/norms.h"
#include "kernels/products.h"
#include "kernels/routing.h"
#include "support/fixture_operation.h"
#include "support/numbers.h"

namespace k3::kernels {
namespace {

using test::close;
using Operation = test::FixtureOperation;

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
      l2norm(x.data() + row * width, 1, width);
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
    for (std::size_t i = 0; i < tokens * heads; ++i) {
      const std::size_t at = i * width;
      const KdaStep step{q.data() + at, k.data() + at, v.data() + at, alpha.data() + at, beta[i]};
      kda_step(step, width, state.data() + (i % heads) * width * width, out.data() + at);
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
    AlignedBuffer<float> scratch(product_scratch_floats(width, tokens));
    multiply(F32Matrix{gate.data(), experts, width, width}, Batch{x.data(), tokens, width},
             scratch.data(), {scores.data(), experts});
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

// docs/numerics.md, error bounds: errors of a product in units of the rms of its outputs.
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
    AlignedBuffer<float> scratch(product_scratch_floats(cols, 2));
    multiply(view, Batch{x.data(), 2, cols}, scratch.data(), {y.data(), rows});
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

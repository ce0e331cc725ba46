// What the kernels of one token cost, each in a loop of its own, without an engine around them.
//
// usage: k3-token-kernels CONFIG [ROUNDS]
//
// Every matrix of the config's tape once, top_k experts of every MoE layer, the KDA steps: on weights
// taken in turn from memory larger than any cache, one vector, all threads. Prints the sums of the
// medians in seconds as JSON. A shape is measured ROUNDS (9) times, each time on other weights.
// Norms, convolutions, attention over few positions and the router's choice are not in it.

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <vector>

#include "k3/errors.h"

#include "base/aligned_buffer.h"
#include "base/host.h"
#include "base/matrix_view.h"
#include "base/parallel.h"
#include "benchmarks/weight_pool.h"
#include "io/config_reader.h"
#include "kernels/isa.h"
#include "kernels/kda.h"
#include "kernels/products.h"
#include "model/tensor_plan.h"

namespace k3::bench {
namespace {

class Kernels {
 public:
  explicit Kernels(std::size_t rounds) : rounds_(rounds) {}

  // Median seconds of one bf16 or, packed, MXFP4 product.
  double product(std::size_t rows, std::size_t cols, bool packed) {
    const std::vector<float> x(cols, 0.25F);
    std::vector<float> y(rows);
    AlignedBuffer<float> scratch(kernels::product_scratch_floats(cols, 1));
    return median([&] {
      kernels::multiply(packed ? MatrixView(next_packed(rows, cols)) : MatrixView(next(rows, cols)),
                        {x.data(), 1, cols}, scratch.data(), {y.data(), rows});
    });
  }

  double kda_step(std::size_t heads, std::size_t width) {
    AlignedBuffer<float> state(heads * width * width);
    const std::vector<float> in(width, 0.1F);
    const std::vector<float> alpha(width, 0.99F);
    std::vector<float> out(heads * width);
    const kernels::KdaStep step{in.data(), in.data(), in.data(), alpha.data(), 0.5F};
    return median([&] {
      parallel_for(heads, width * width, [&](std::size_t h) {
        kernels::kda_step(step, width, state.data() + h * width * width, out.data() + h * width);
      });
    });
  }

 private:
  [[nodiscard]] double median(const std::function<void()>& work) const {
    work();
    return median_seconds(rounds_, work);
  }

  // The next `bytes` of the pool.
  const std::byte* take(std::size_t bytes) {
    if (bytes > kPoolBytes) {
      throw Error(ErrorKind::kUsage, "a matrix of this config is larger than the pool");
    }
    at_ = at_ + bytes > kPoolBytes ? 0 : at_;
    const std::byte* taken = pool_.data() + at_;
    at_ += (bytes + 63) / 64 * 64;
    return taken;
  }

  Bf16Matrix next(std::size_t rows, std::size_t cols) {
    return {reinterpret_cast<const std::uint16_t*>(take(rows * cols * 2)), rows, cols, cols};
  }

  Mxfp4Matrix next_packed(std::size_t rows, std::size_t cols) {
    const auto* bytes =
        reinterpret_cast<const std::uint8_t*>(take(rows * cols / 2 + rows * cols / 32));
    return {bytes, bytes + rows * cols / 2, rows, cols, cols / 2, cols / 32};
  }

  std::size_t rounds_;
  AlignedBuffer<std::byte> pool_ = make_weight_pool();
  std::size_t at_ = 0;
};

void run(const char* config_path, std::size_t rounds) {
  const ModelConfig config = io::read_config(config_path);
  set_thread_count(default_threads());
  Kernels kernels(rounds);
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> shapes;
  model::for_each_tape_matrix(config, [&](const model::TensorSpec& spec) {
    shapes[{spec.shape[0], spec.shape[1]}] += 1;
  });
  double tape = 0.0;
  for (const auto& [shape, count] : shapes) {
    tape += static_cast<double>(count) * kernels.product(shape.first, shape.second, false);
  }
  std::size_t moe_layers = 0;
  std::size_t kda_layers = 0;
  for (std::size_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    moe_layers += config.is_dense(layer) ? 0U : 1U;
    kda_layers += config.is_mla[layer] ? 0U : 1U;
  }
  double experts = 0.0;
  if (moe_layers > 0) {
    const std::size_t inner = config.moe_intermediate_size;
    const std::size_t latent = config.routed_expert_hidden_size;
    experts = static_cast<double>(moe_layers * config.num_experts_per_token) *
              (2 * kernels.product(inner, latent, true) + kernels.product(latent, inner, true));
  }
  const double kda =
      static_cast<double>(kda_layers) * kernels.kda_step(config.kda_num_heads, config.kda_head_dim);
  std::printf("{\"tape\": %.6f, \"experts\": %.6f, \"kda\": %.6f, \"seconds\": %.6f}\n", tape,
              experts, kda, tape + experts + kda);
}

}  // namespace
}  // namespace k3::bench

int main(int argc, char** argv) {
  constexpr int kRounds = 9;
  const int rounds = argc == 3 ? std::atoi(argv[2]) : kRounds;
  if (argc < 2 || argc > 3 || rounds < 1) {
    std::fprintf(stderr, "usage: k3-token-kernels CONFIG [ROUNDS]\n");
    return 2;
  }
  try {
    k3::bench::run(argv[1], static_cast<std::size_t>(rounds));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "k3-token-kernels: %s\n", error.what());
    return 1;
  }
}

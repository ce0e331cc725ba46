// Any bytes as config.json: the reader refuses them with Error(kConfig) or gives a model whose
// derived sizes are sound.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "k3/errors.h"

#include "io/config_reader.h"

namespace {

void require(bool holds) {
  if (!holds) {
    std::abort();  // libFuzzer reports the input
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const k3::ModelConfig config =
        k3::io::parse_config({reinterpret_cast<const char*>(data), size}, "fuzz.json");
    require(config.hidden_size > 0 && config.vocab_size > 0 && config.num_hidden_layers > 0);
    require(config.is_mla.size() == config.num_hidden_layers);
    require(std::count(config.is_mla.begin(), config.is_mla.end(), false) > 0);
    require(config.num_experts_per_token > 0);
    require(config.num_experts_per_token <= config.num_experts);
    require(config.first_k_dense_replace <= config.num_hidden_layers);
    require(config.routed_expert_hidden_size % 32 == 0);
    require(config.moe_intermediate_size % 32 == 0);
    require(config.kda_width() / config.kda_head_dim == config.kda_num_heads);
    require(std::isfinite(config.rms_norm_eps) && config.rms_norm_eps >= 0.0);
    require(config.situ_beta > 0.0 && config.situ_linear_beta > 0.0);
  } catch (const k3::Error& error) {
    require(error.kind() == k3::ErrorKind::kConfig);
  }
  return 0;
}

#include "support/tiny_checkpoint.h"

#include <cstdint>
#include <functional>
#include <utility>

#include "base/dtype.h"
#include "model/tensor_plan.h"
#include "support/safetensors_builder.h"

namespace k3::test {
namespace {

constexpr std::size_t kShards = 4;

std::size_t element_size(const std::string& dtype) {
  const std::size_t size = dtype_size(dtype_from_name(dtype));
  return size != 0 ? size : 8;  // F64 and I64 in these tests
}

std::string data_for(const std::string& name, std::size_t bytes) {
  std::uint64_t state = std::hash<std::string>{}(name) | 1U;
  std::string data;
  for (std::size_t i = 0; i < bytes; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    data += static_cast<char>(state >> 56U);
  }
  return data;
}

std::string shape_json(const std::vector<std::size_t>& shape) {
  std::string text;
  for (const std::size_t extent : shape) {
    text += (text.empty() ? "" : ",") + std::to_string(extent);
  }
  return "[" + text + "]";
}

std::string dtype_of(model::TensorKind kind) {
  switch (kind) {
    case model::TensorKind::kVector:
      return "F32";
    case model::TensorKind::kMatrix:
      return "BF16";
    default:
      return "U8";
  }
}

}  // namespace

ModelConfig tiny_config() {
  ModelConfig config;
  config.hidden_size = 24;
  config.num_hidden_layers = 3;
  config.vocab_size = 10;
  config.rms_norm_eps = 1e-5;
  config.kda_num_heads = 2;
  config.kda_head_dim = 8;
  config.short_conv_kernel_size = 4;
  config.gate_lower_bound = -5.0;
  config.is_mla = {false, false, true};
  config.num_attention_heads = 3;
  config.q_lora_rank = 7;
  config.kv_lora_rank = 9;
  config.qk_nope_head_dim = 6;
  config.qk_rope_head_dim = 2;
  config.v_head_dim = 5;
  config.mla_use_output_gate = true;
  config.num_experts = 3;
  config.num_experts_per_token = 2;
  config.num_shared_experts = 1;
  config.routed_expert_hidden_size = 32;
  config.moe_intermediate_size = 64;
  config.routed_scaling_factor = 1.0;
  config.moe_renormalize = true;
  config.latent_moe_use_norm = true;
  config.first_k_dense_replace = 1;
  config.intermediate_size = 11;
  config.attn_res_block_size = 2;
  config.situ_beta = 4.0;
  config.situ_linear_beta = 25.0;
  return config;
}

TinyCheckpoint::TinyCheckpoint(const ModelConfig& config) {
  model::for_each_tensor(config, [&](const model::TensorSpec& spec) {
    const std::vector<std::size_t> shape(
        spec.shape.begin(), spec.shape.begin() + static_cast<std::ptrdiff_t>(spec.rank));
    Placed& placed = tensors_[spec.name];
    placed.shard = spec.layer == model::kNoIndex ? kShards : spec.layer + 1;
    set(spec.name, dtype_of(spec.kind), shape);
  });
}

void TinyCheckpoint::set(const std::string& name,
                         const std::string& dtype,
                         const std::vector<std::size_t>& shape,
                         std::string bytes) {
  std::size_t size = element_size(dtype);
  for (const std::size_t extent : shape) {
    size *= extent;
  }
  TinyTensor& tensor = tensors_.at(name).tensor;
  tensor.dtype = dtype;
  tensor.shape = shape;
  tensor.data = bytes.empty() ? data_for(name, size) : std::move(bytes);
}

void TinyCheckpoint::move(const std::string& name, std::size_t shard, std::size_t gap) {
  Placed& placed = tensors_.at(name);
  placed.shard = shard;
  placed.gap = gap;
}

std::string TinyCheckpoint::shard_name(std::size_t number) {
  return "model-0000" + std::to_string(number) + "-of-00000" + std::to_string(kShards) +
         ".safetensors";
}

void TinyCheckpoint::write(const std::filesystem::path& directory) const {
  std::vector<SafetensorsBuilder> shards(kShards);
  for (auto entry = tensors_.rbegin(); entry != tensors_.rend(); ++entry) {  // by falling id
    const auto& [name, placed] = *entry;
    shards[placed.shard - 1]
        .gap(placed.gap)
        .add(name, placed.tensor.dtype, shape_json(placed.tensor.shape), placed.tensor.data);
  }
  for (std::size_t number = 1; number <= kShards; ++number) {
    shards[number - 1].write(directory / shard_name(number));
  }
}

void TinyCheckpoint::write_weight_map(const std::filesystem::path& directory) const {
  std::string entries;
  for (const auto& [name, placed] : tensors_) {
    entries.append(entries.empty() ? "" : ",").append("\"").append(name).append("\":\"");
    entries.append(shard_name(placed.shard)).append("\"");
  }
  write_file(directory / "model.safetensors.index.json", R"({"weight_map":{)" + entries + "}}");
}

}  // namespace k3::test

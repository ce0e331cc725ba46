#include "shard_layout.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace k3::tools {
namespace {

using model::TensorKind;
using model::TensorRole;
using model::TensorSpec;

// Type of a tensor in the release.
DType released_dtype(const TensorSpec& spec) {
  switch (spec.kind) {
    case TensorKind::kMatrix:
      return DType::kBf16;
    case TensorKind::kPacked:
    case TensorKind::kScale:
      return DType::kU8;
    case TensorKind::kVector:
      break;
  }
  switch (spec.role) {
    case TensorRole::kKdaQConv:
    case TensorRole::kKdaKConv:
    case TensorRole::kKdaVConv:
    case TensorRole::kKdaALog:
    case TensorRole::kKdaDtBias:
    case TensorRole::kKdaONorm:
    case TensorRole::kRouterBias:
      return DType::kF32;
    default:
      return DType::kBf16;
  }
}

ShardTensor released_tensor(const TensorSpec& spec, const ModelConfig& config) {
  ShardTensor tensor{
      .name = spec.name,
      .dtype = released_dtype(spec),
      .shape = {spec.shape.begin(), spec.shape.begin() + static_cast<std::ptrdiff_t>(spec.rank)},
      .role = spec.role};
  if (spec.role == TensorRole::kKdaALog) {  // stored longer than its heads: 128 for 96
    tensor.shape[0] = std::max(config.kda_num_heads, config.kda_head_dim);
  }
  return tensor;
}

int type_order(DType dtype) {
  return dtype == DType::kF32 ? 0 : dtype == DType::kBf16 ? 1 : 2;
}

}  // namespace

Shard layer_shard(const ModelConfig& config, std::size_t layer) {
  Shard shard;
  const auto add = [&](const TensorSpec& spec) { shard.push_back(released_tensor(spec, config)); };
  model::for_each_trunk_tensor(config, layer, add);
  for (std::size_t expert = 0; !config.is_dense(layer) && expert < config.num_experts; ++expert) {
    model::for_each_expert_tensor(config, layer, expert, add);
  }
  return shard;
}

Shard model_shard(ModelConfig config) {
  Shard shard;
  config.num_hidden_layers = 0;  // what is left are the tensors of the model level
  model::for_each_tensor(
      config, [&](const TensorSpec& spec) { shard.push_back(released_tensor(spec, config)); });
  return shard;
}

std::string lay_out(Shard& shard) {
  std::sort(shard.begin(), shard.end(), [](const ShardTensor& a, const ShardTensor& b) {
    return std::pair(type_order(a.dtype), std::string_view(a.name)) <
           std::pair(type_order(b.dtype), std::string_view(b.name));
  });
  std::string header = "{";
  std::uint64_t end = 0;
  for (ShardTensor& tensor : shard) {
    std::string shape;
    tensor.begin = end;
    tensor.bytes = dtype_size(tensor.dtype);
    for (const std::uint64_t extent : tensor.shape) {
      shape += (shape.empty() ? "" : ",") + std::to_string(extent);
      tensor.bytes *= extent;
    }
    header += header.size() > 1 ? ",\"" : "\"";
    header.append(tensor.name).append("\":{\"dtype\":\"").append(dtype_name(tensor.dtype));
    header.append("\",\"shape\":[").append(shape).append("],\"data_offsets\":[");
    header.append(std::to_string(end)).append(",");
    end += tensor.bytes;
    header.append(std::to_string(end)).append("]}");
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string length;
  for (unsigned shift = 0; shift < 64; shift += 8) {  // little-endian
    length += static_cast<char>((std::uint64_t{header.size()} >> shift) & 0xffU);
  }
  return length + header;
}

std::uint64_t data_bytes(const Shard& shard) {
  return shard.empty() ? 0 : shard.back().begin + shard.back().bytes;
}

std::string shard_name(std::size_t number, std::size_t count) {
  const auto padded = [](std::size_t value, std::size_t digits) {
    const std::string text = std::to_string(value);
    return std::string(digits - std::min(digits, text.size()), '0') + text;
  };
  return "model-" + padded(number, 5) + "-of-" + padded(count, 6) + ".safetensors";
}

}  // namespace k3::tools

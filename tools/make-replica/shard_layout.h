// How the release lays the tensors of a text model into shards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "k3/config.h"

#include "base/dtype.h"
#include "model/tensor_plan.h"

namespace k3::tools {

struct ShardTensor {
  std::string name = {};
  DType dtype = DType::kBf16;
  std::vector<std::uint64_t> shape = {};
  model::TensorRole role = model::TensorRole::kEmbedding;  // of a text model's tensors
  std::uint64_t begin = 0;                                 // in the data of the shard
  std::uint64_t bytes = 0;
};

using Shard = std::vector<ShardTensor>;

// The tensors of one layer, its routed experts included.
[[nodiscard]] Shard layer_shard(const ModelConfig& config, std::size_t layer);

// The tensors of the model level.
[[nodiscard]] Shard model_shard(ModelConfig config);

// Sorts the tensors as in the release, by type (F32, BF16, U8), then by name, gives them their places,
// and returns what comes before the data: the length of the header and the header, compact JSON
// padded to 8.
[[nodiscard]] std::string lay_out(Shard& shard);

// Bytes of the data of a shard that is laid out.
[[nodiscard]] std::uint64_t data_bytes(const Shard& shard);

// "model-00001-of-000096.safetensors"; `number` counts from 1.
[[nodiscard]] std::string shard_name(std::size_t number, std::size_t count);

}  // namespace k3::tools

// Header-only replicas of a released checkpoint: every shard with its name, header and size, but
// without a byte of weights, which lie in holes of sparse files. For tests and benchmarks of
// everything that happens before weights are read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>

#include "k3/config.h"

namespace k3::tools {

// The dimensions of the released model (docs/formats.md).
[[nodiscard]] ModelConfig released_config();

// The first `layers` layers of a model, each MoE layer with `experts` experts. Neither may be above
// the model's own.
[[nodiscard]] ModelConfig shrink(ModelConfig config, std::size_t layers, std::size_t experts);

struct ReplicaOptions {
  bool vision = true;       // two last shards with the 168 vision tensors of the release
  bool weight_map = false;  // model.safetensors.index.json: 48 MB for the released dimensions
};

struct ReplicaFacts {
  std::size_t tensors = 0;
  std::size_t shards = 0;
  std::uint64_t shard_bytes = 0;   // apparent sizes
  std::uint64_t header_bytes = 0;  // what takes disk space
};

// Writes config.json and the shards into `directory`, which must be absent or empty: layer L in
// shard L+1, then the model level, then vision. Sizes are those of the release to the byte: headers
// are compact JSON padded to 8, tensors lie by type (F32, BF16, U8), then by name. Throws
// k3::Error(kUsage) for a directory that is not empty, std::system_error when writing fails.
ReplicaFacts write_replica(const ModelConfig& config,
                           const std::filesystem::path& directory,
                           const ReplicaOptions& options);

}  // namespace k3::tools

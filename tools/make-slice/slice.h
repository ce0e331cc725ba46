// Slices of the released model with random weights: its widths, fewer layers and experts, a shorter
// vocabulary. For measurements and tests that need real sizes but no sense.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "k3/config.h"

namespace k3::tools {

struct SliceShape {
  // Of each layer: "kda" or "mla", with "-dense" for those of the first layers that have the dense
  // MLP instead of experts.
  std::vector<std::string> layers = {"kda-dense", "kda", "kda", "mla", "kda", "kda", "mla"};
  std::size_t experts = 32;  // of each other layer, at least 16, of which a token uses 16
  std::size_t vocabulary = 4096;
  std::size_t width_divisor = 1;  // 1, 2, 4, 8 or 16: divides widths and heads, not head widths
};

// The config of a slice; throws k3::Error(kUsage) for a shape that there is not.
[[nodiscard]] ModelConfig slice_config(const SliceShape& shape);

struct SliceOptions {
  std::uint64_t seed = 1;
  std::size_t threads = 1;
  const std::atomic<bool>* stop = nullptr;  // set: k3::Error(kInterrupted)
};

struct SliceFacts {
  std::size_t tensors = 0;
  std::size_t shards = 0;
  std::uint64_t shard_bytes = 0;
};

// Bytes that write_slice() will write, config.json aside.
[[nodiscard]] std::uint64_t slice_bytes(const ModelConfig& config);

// Writes config.json and the shards, laid out as in the release. They are written into a new
// directory beside `directory` ("<directory>.part"), which takes the name of `directory` when all of
// it is on the disk and is removed when anything fails. `directory` must be absent or empty. The
// bytes depend on config and seed alone. Throws k3::Error(kUsage) for such a directory or a disk that
// is too full, k3::Error(kIo) when a write fails.
SliceFacts write_slice(const ModelConfig& config,
                       const std::filesystem::path& directory,
                       const SliceOptions& options);

}  // namespace k3::tools

// A packed trunk: the tensors of all layers outside the routed experts, copied into one file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "k3/config.h"

#include "io/file.h"
#include "io/trunk_manifest.h"
#include "model/tensor_plan.h"
#include "runtime/checkpoint.h"

namespace k3::runtime {

// trunk.bin and trunk.json of a directory (docs/formats.md), bound to a checkpoint: every tensor
// that the run uses is there with the checkpoint's dtype, shape and size, and trunk.bin is long
// enough for every run, before a byte of its data is read. That the bytes are those of the
// checkpoint is not checked here: `k3-pack --check` compares them.
class PackedTrunk {
 public:
  // Throws Error(kUserFile) saying file, key, expected and found. Layers beyond those of `config`
  // and tensors that the run does not use may be there. Nothing is kept open.
  PackedTrunk(io::FileSystem& file_system,
              const std::filesystem::path& directory,
              const Checkpoint& checkpoint,
              const ModelConfig& config);

  struct Extent {
    std::uint64_t offset = 0;  // in trunk.bin
    std::uint64_t nbytes = 0;

    bool operator==(const Extent&) const = default;
  };

  // Where a trunk tensor of a layer lies. Nothing for the model level (model::kNoIndex), whose
  // tensors stay in the shards, for routed experts, and where Checkpoint::find has nothing.
  [[nodiscard]] std::optional<Extent> find(std::size_t layer, model::TensorRole role) const;

  [[nodiscard]] const std::filesystem::path& data_path() const { return data_path_; }

  [[nodiscard]] std::size_t memory_bytes() const { return extents_.capacity() * sizeof(Extent); }

 private:
  void bind(const io::TrunkManifest& manifest,
            const std::string& manifest_name,
            const Checkpoint& checkpoint,
            const ModelConfig& config);

  std::filesystem::path data_path_;
  std::vector<Extent> extents_;  // [layer][role of the trunk]; without bytes: no such tensor
};

}  // namespace k3::runtime

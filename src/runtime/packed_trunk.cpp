#include "runtime/packed_trunk.h"

#include <algorithm>
#include <memory>
#include <string>

#include "k3/errors.h"

#include "base/printable.h"
#include "io/safetensors_types.h"

namespace k3::runtime {
namespace {

using io::TrunkManifest;
using io::TrunkRun;
using io::TrunkTensor;
using model::TensorRole;
using model::TensorSpec;

constexpr std::size_t kTrunkRoles = static_cast<std::size_t>(TensorRole::kExpertW1);

// The tensor of a run, with the type, shape and size that the checkpoint has.
const TrunkTensor& matching_tensor(const TrunkRun& run,
                                   const std::string& manifest_name,
                                   const TensorSpec& spec,
                                   const TensorExtent& wanted) {
  const std::string where = manifest_name + ": " + spec.name;
  const auto found = run.tensors.find(spec.name);
  if (found == run.tensors.end()) {
    refuse_user_file(where, "missing tensor", "it in layer " + std::to_string(run.layer), "none");
  }
  const TrunkTensor& tensor = found->second;
  if (tensor.dtype != wanted.dtype_text) {
    refuse_user_file(where, "dtype differs from the checkpoint's", printable(wanted.dtype_text),
                     printable(tensor.dtype));
  }
  if (!std::ranges::equal(tensor.shape, wanted.shape)) {
    refuse_user_file(where, "shape differs from the checkpoint's", io::shape_text(wanted.shape),
                     printable(io::shape_text(tensor.shape)));
  }
  if (tensor.nbytes != wanted.nbytes) {
    refuse_user_file(where, "nbytes differs from the checkpoint's", std::to_string(wanted.nbytes),
                     std::to_string(tensor.nbytes));
  }
  return tensor;
}

void check_size(io::FileSystem& file_system,
                const std::filesystem::path& path,
                const TrunkManifest& manifest) {
  const std::uint64_t found = io::open_file(file_system, path, ErrorKind::kUserFile)->size();
  const std::uint64_t expected = manifest.data_bytes();
  if (found < expected) {
    refuse_user_file(path.string(), "truncated",
                     "at least " + std::to_string(expected) + " bytes by trunk.json",
                     std::to_string(found) + " bytes");
  }
}

}  // namespace

PackedTrunk::PackedTrunk(io::FileSystem& file_system,
                         const std::filesystem::path& directory,
                         const Checkpoint& checkpoint,
                         const ModelConfig& config)
    : data_path_(directory / io::kTrunkDataName), extents_(config.num_hidden_layers * kTrunkRoles) {
  const std::filesystem::path path = directory / io::kTrunkManifestName;
  const TrunkManifest manifest = io::read_trunk_manifest(file_system, path);
  bind(manifest, path.string(), checkpoint, config);
  check_size(file_system, data_path_, manifest);
}

void PackedTrunk::bind(const TrunkManifest& manifest,
                       const std::string& manifest_name,
                       const Checkpoint& checkpoint,
                       const ModelConfig& config) {
  const std::size_t layers = config.num_hidden_layers;
  if (manifest.layer_count < layers) {
    refuse_user_file(manifest_name + ": n_layers", "too few layers",
                     std::to_string(layers) + " or more for this run",
                     std::to_string(manifest.layer_count));
  }
  for (std::size_t layer = 0; layer < layers; ++layer) {
    const auto found = manifest.runs.find(layer);
    if (found == manifest.runs.end()) {
      refuse_user_file(manifest_name + ": layers", "missing layer",
                       "layer " + std::to_string(layer), "none");
    }
    const TrunkRun& run = found->second;
    model::for_each_trunk_tensor(config, layer, [&](const TensorSpec& spec) {
      const std::optional<TensorExtent> wanted = checkpoint.find(layer, spec.role);
      if (wanted.has_value()) {
        const TrunkTensor& tensor = matching_tensor(run, manifest_name, spec, *wanted);
        extents_[layer * kTrunkRoles + static_cast<std::size_t>(spec.role)] = {
            .offset = run.offset + tensor.offset, .nbytes = tensor.nbytes};
      }
    });
  }
}

std::optional<PackedTrunk::Extent> PackedTrunk::find(std::size_t layer, TensorRole role) const {
  const auto column = static_cast<std::size_t>(role);
  if (column >= kTrunkRoles || layer >= extents_.size() / kTrunkRoles) {
    return std::nullopt;
  }
  const Extent extent = extents_[layer * kTrunkRoles + column];
  return extent.nbytes == 0 ? std::nullopt : std::optional(extent);
}

}  // namespace k3::runtime

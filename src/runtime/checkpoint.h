// A checkpoint directory bound to a model: every tensor that the run uses exists, has the shape that
// the config demands and a type that the kernels read, before a byte of data is read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "k3/config.h"

#include "io/checkpoint_index.h"
#include "io/file.h"
#include "model/tensor_plan.h"

namespace k3::runtime {

using TensorExtent = io::TensorEntry;  // dtype, shape, shard, offset in its file, bytes

// The tensors of one routed expert, in the order of model::for_each_expert_tensor:
// w1, w1 scale, w2, w2 scale, w3, w3 scale.
using ExpertExtents = std::array<TensorExtent, 6>;

class Checkpoint {
 public:
  // Indexes `directory` and binds the tensors that `config` uses. Throws Error(kCheckpoint): for
  // missing tensors the first one, how many there are and why; for a wrong shape or type the
  // tensor, what is expected and what is found. `file_system` must outlive the checkpoint.
  Checkpoint(io::FileSystem& file_system,
             const std::filesystem::path& directory,
             const ModelConfig& config);

  // A tensor outside the routed experts; `layer` is model::kNoIndex for those of the model level.
  // Nothing when the layer has no such tensor or the config does not use it.
  [[nodiscard]] std::optional<TensorExtent> find(std::size_t layer, model::TensorRole role) const;

  // The same for a tensor that is known to be there; std::logic_error otherwise.
  [[nodiscard]] TensorExtent tensor(std::size_t layer, model::TensorRole role) const;

  // `layer` has experts and `expert` is below their count; std::logic_error otherwise.
  [[nodiscard]] ExpertExtents expert(std::size_t layer, std::size_t expert) const;

  // Reads out.size() bytes that begin `begin` bytes into the tensor. Throws Error(kIo);
  // std::logic_error for a range outside the tensor. Callable from several threads.
  void read_bytes(const TensorExtent& extent,
                  std::uint64_t begin,
                  std::span<std::byte> out,
                  ErrorKind kind = ErrorKind::kIo) const;

  // Reads a bound vector and widens it exactly to float32. Of a tensor that may be longer than its
  // spec (A_log) only the spec's values are read. Throws Error(kIo).
  [[nodiscard]] std::vector<float> read_vector(const model::TensorSpec& spec) const;

  // The open file of a shard that holds a bound tensor; std::logic_error for another shard.
  [[nodiscard]] io::File& file(std::uint32_t shard) const;

  // The shard holds a bound tensor.
  [[nodiscard]] bool uses_shard(std::uint32_t shard) const {
    return shard < files_.size() && files_[shard] != nullptr;
  }

  [[nodiscard]] const io::CheckpointIndex& index() const { return index_; }

  [[nodiscard]] std::size_t bound_tensor_count() const { return bound_count_; }

  // Bytes of the bound tensors: outside the routed experts, and of these.
  [[nodiscard]] std::uint64_t trunk_bytes() const { return trunk_bytes_; }

  [[nodiscard]] std::uint64_t expert_bytes() const { return expert_bytes_; }

  // Heap bytes of the index and the binding.
  [[nodiscard]] std::size_t memory_bytes() const;

 private:
  class Binder;

  [[nodiscard]] std::size_t trunk_slot(std::size_t layer, model::TensorRole role) const;

  io::CheckpointIndex index_;
  std::size_t layers_;
  std::size_t experts_per_layer_;     // per MoE layer
  std::size_t dense_layers_;          // the layers before the first MoE layer
  std::vector<std::uint32_t> trunk_;  // [layer, the model level last][role]: index id or kUnbound
  std::vector<std::uint32_t> expert_ids_;         // [MoE layer][expert][6]: index id
  std::vector<std::unique_ptr<io::File>> files_;  // [shard]; null without a bound tensor
  std::size_t bound_count_ = 0;
  std::uint64_t trunk_bytes_ = 0;
  std::uint64_t expert_bytes_ = 0;
};

}  // namespace k3::runtime

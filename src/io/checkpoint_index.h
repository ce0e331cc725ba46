// All tensors of a checkpoint directory, found by name: one pass over the shards' headers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "k3/errors.h"

#include "base/dtype.h"
#include "io/file.h"
#include "io/name_table.h"
#include "io/safetensors_header.h"

namespace k3::io {

// Where a tensor's bytes lie and what they are. Views stay valid as long as the index.
struct TensorEntry {
  DType dtype = DType::kOther;
  std::string_view dtype_text;           // as the header writes it
  std::span<const std::uint64_t> shape;  // [rank]
  std::uint64_t offset = 0;              // from the start of the shard's file
  std::uint64_t nbytes = 0;
  std::uint32_t shard = 0;
};

// The index of every `*.safetensors` file of a directory (names that begin with a dot aside),
// shards numbered in the order of their names.
//
// A run may use part of a checkpoint (the first N layers, the text model alone), so a missing or
// damaged shard is no error by itself. A damaged shard, whatever is wrong with it, contributes
// no tensor at all, also when the damage concerns only tensors that nobody wants; its fault is kept and
// reported by explain_missing() once a tensor of it is wanted.
class CheckpointIndex {
 public:
  // Throws Error(kCheckpoint) when the directory cannot be read or holds no shard, and when two
  // shards hold a tensor of the same name. `file_system` must outlive the index.
  CheckpointIndex(FileSystem& file_system, std::filesystem::path directory);

  [[nodiscard]] std::optional<TensorEntry> find(std::string_view name) const;

  // The same in two steps, for those who keep ids: 4 bytes a tensor.
  [[nodiscard]] std::optional<std::uint32_t> find_id(std::string_view name) const {
    return names_.find(name);
  }

  [[nodiscard]] TensorEntry entry(std::uint32_t id) const;  // id < tensor_count()

  [[nodiscard]] std::string_view name(std::uint32_t id) const { return names_.name(id); }

  [[nodiscard]] std::size_t tensor_count() const { return places_.size(); }

  // Shards found in the directory, damaged ones included.
  [[nodiscard]] std::size_t shard_count() const { return shards_.size(); }

  [[nodiscard]] std::size_t damaged_shard_count() const;

  [[nodiscard]] const std::filesystem::path& shard_path(std::uint32_t shard) const {
    return shards_[shard].path;
  }

  // What is wrong with a shard, naming its file; empty for a whole one.
  [[nodiscard]] const std::string& shard_fault(std::uint32_t shard) const {
    return shards_[shard].fault;
  }

  [[nodiscard]] const std::filesystem::path& directory() const { return directory_; }

  // Why a name is not found, for an Error(kCheckpoint): the damaged or absent shard that should
  // hold it, by model.safetensors.index.json where that names it, else by elimination.
  [[nodiscard]] ErrorDetail explain_missing(std::string_view name) const;

  // Heap bytes that the index holds.
  [[nodiscard]] std::size_t memory_bytes() const;

 private:
  struct Shard {
    std::filesystem::path path;
    std::string fault;
  };

  // What thousands of tensors have in common.
  struct Layout {
    DType dtype = DType::kOther;
    std::string dtype_text;
    std::vector<std::uint64_t> shape;
    std::uint64_t nbytes = 0;
  };

  struct Place {
    std::uint64_t offset = 0;
    std::uint32_t shard = 0;
    std::uint32_t layout = 0;
  };

  void find_shards();
  void add_shard(std::uint32_t shard, std::span<const HeaderTensor> tensors);
  std::uint32_t intern_layout(const HeaderTensor& tensor);
  [[nodiscard]] std::string explain_by_weight_map(const std::string& shard_name) const;
  [[nodiscard]] std::string explain_by_elimination() const;

  FileSystem* file_system_;
  std::filesystem::path directory_;
  std::vector<Shard> shards_;
  NameTable names_;            // ids are those of places_
  std::vector<Place> places_;  // [id]
  std::vector<Layout> layouts_;
  std::unordered_map<std::string, std::uint32_t> layout_ids_;  // by type, size and shape
  std::string layout_key_;                                     // scratch of intern_layout
};

}  // namespace k3::io

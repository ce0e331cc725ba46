#include "runtime/tape_layout.h"

#include <algorithm>

namespace k3::runtime {
namespace {

using model::TensorRole;
using model::TensorSpec;

// The whole matrix in its file.
FileRange matrix_range(const TensorExtent& extent,
                       const TensorSpec& spec,
                       const PackedTrunk* trunk,
                       const WeightFiles& files) {
  const auto bytes = static_cast<std::size_t>(extent.nbytes);
  if (trunk != nullptr) {
    if (const auto packed = trunk->find(spec.layer, spec.role)) {
      return files.in_trunk(packed->offset, bytes);
    }
  }
  return files.in_shard(extent.shard, extent.offset, bytes);
}

}  // namespace

std::uint64_t TapeLayout::payload_of(std::size_t first, std::size_t last) const {
  std::uint64_t bytes = 0;
  for (std::size_t i = first; i < last; ++i) {
    bytes += tiles[i].range.bytes;
  }
  return bytes;
}

TapeLayout tape_layout(const Checkpoint& checkpoint,
                       const PackedTrunk* trunk,
                       const WeightFiles& files,
                       const ModelConfig& config,
                       std::size_t tile_bytes) {
  TapeLayout layout;
  model::for_each_tape_matrix(config, [&](const TensorSpec& spec) {
    const TensorExtent extent = checkpoint.tensor(spec.layer, spec.role);
    const FileRange whole = matrix_range(extent, spec, trunk, files);
    const auto rows = static_cast<std::size_t>(spec.shape[0]);
    const std::size_t row_bytes = whole.bytes / rows;
    const bool in_one = spec.role == TensorRole::kMlaKvB;
    const std::size_t most_rows =
        in_one ? rows : std::clamp(tile_bytes / row_bytes, std::size_t{1}, rows);
    const std::size_t count = (rows + most_rows - 1) / most_rows;
    if (spec.role == TensorRole::kHead) {
      layout.head_begin = layout.tiles.size();
    }
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t first = rows * i / count;  // shares that differ by one row
      const std::size_t last = rows * (i + 1) / count;
      FileRange range = whole;
      range.offset += first * row_bytes;
      range.bytes = (last - first) * row_bytes;
      layout.tiles.push_back({.id = {spec.layer, spec.role},
                              .dtype = extent.dtype,
                              .rows = last - first,
                              .cols = static_cast<std::size_t>(spec.shape[1]),
                              .range = range,
                              .memory_bytes = files.memory_of(range)});
      layout.largest_tile = std::max(layout.largest_tile, layout.tiles.back().memory_bytes);
      layout.payload_bytes += range.bytes;
      layout.memory_bytes += layout.tiles.back().memory_bytes;
    }
  });
  return layout;
}

std::vector<bool> choose_pinned(const TapeLayout& layout, std::uint64_t budget) {
  std::vector<bool> pinned(layout.tiles.size(), budget >= layout.memory_bytes);
  if (budget >= layout.memory_bytes || layout.memory_bytes == 0) {
    return pinned;
  }
  const double share = static_cast<double>(budget) / static_cast<double>(layout.memory_bytes);
  std::uint64_t left = budget;
  double due = 0.0;  // bytes that the walk so far should have kept and has not
  for (std::size_t i = 0; i < pinned.size(); ++i) {
    const std::size_t bytes = layout.tiles[i].memory_bytes;
    due += share * static_cast<double>(bytes);
    if (due >= static_cast<double>(bytes) && bytes <= left) {
      pinned[i] = true;
      left -= bytes;
      due -= static_cast<double>(bytes);
    }
  }
  for (std::size_t i = 0; i < pinned.size(); ++i) {
    const std::size_t bytes = layout.tiles[i].memory_bytes;
    if (!pinned[i] && bytes <= left) {
      pinned[i] = true;
      left -= bytes;
    }
  }
  return pinned;
}

std::uint64_t pinned_bytes(const TapeLayout& layout, const std::vector<bool>& pinned) {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < pinned.size(); ++i) {
    bytes += pinned[i] ? layout.tiles[i].memory_bytes : 0;
  }
  return bytes;
}

}  // namespace k3::runtime

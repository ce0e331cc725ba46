// The trunk matrices of a model cut into tiles, where each tile lies, and which ones stay in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "k3/config.h"

#include "model/weights.h"
#include "runtime/checkpoint.h"
#include "runtime/packed_trunk.h"
#include "runtime/weight_files.h"

namespace k3::runtime {

// Large enough that a product does not notice, small enough that a budget is used to the last of them.
inline constexpr std::size_t kTileBytes = std::size_t{16} << 20U;

// Consecutive rows of one matrix.
struct TapeTile {
  model::MatrixId id;
  DType dtype = DType::kBf16;  // kBf16 or kF32
  std::size_t rows = 0;
  std::size_t cols = 0;
  FileRange range;
  std::size_t memory_bytes = 0;  // of its window, in multiples of WeightFiles::alignment()
};

struct TapeLayout {
  std::vector<TapeTile> tiles;   // in execution order; those of the head are last
  std::size_t head_begin = 0;    // first tile of the head
  std::size_t largest_tile = 0;  // memory of the largest tile
  std::uint64_t payload_bytes = 0;
  std::uint64_t memory_bytes = 0;  // of all tiles

  [[nodiscard]] std::uint64_t payload_of(std::size_t first, std::size_t last) const;
};

// Matrices of `config` in tiles of at most `tile_bytes`, or one row; kv_b in one. The tensors of
// layers come from `trunk` when it is given, everything else from the shards.
[[nodiscard]] TapeLayout tape_layout(const Checkpoint& checkpoint,
                                     const PackedTrunk* trunk,
                                     const WeightFiles& files,
                                     const ModelConfig& config,
                                     std::size_t tile_bytes = kTileBytes);

// Which tiles to keep within `budget` bytes of memory, windows included: spread evenly over the tape,
// so that streamed ones lie between them everywhere; then whatever else fits. [tile]
[[nodiscard]] std::vector<bool> choose_pinned(const TapeLayout& layout, std::uint64_t budget);

// Memory of the chosen tiles.
[[nodiscard]] std::uint64_t pinned_bytes(const TapeLayout& layout, const std::vector<bool>& pinned);

}  // namespace k3::runtime

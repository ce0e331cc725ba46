// Products under contract C2, for any Vector: rows of a matrix times a packed batch.
//
// Blocks of kRowBlock rows outside, then sum blocks of 1,024 elements, then tiles of kTileRows rows by
// kTileVectors vectors in registers. The weights of a tile row are decoded in registers when few
// vectors use them, else once into a scratch that stays in the L1 cache, one part at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/simd/decode.h"
#include "kernels/simd/products_pack.h"
#include "kernels/simd/row_cursor.h"

namespace k3::kernels {
namespace {

// Rows whose lane totals are kept: a multiple of the tile's and of a vector's width.
inline constexpr std::size_t kRowBlock = 8 * kTileRows;
static_assert(kRowBlock % Vector::kWidth == 0);

// So narrow a matrix is decoded in registers, as is one for up to Format::kDirectVectors vectors.
inline constexpr std::size_t kDirectCols = 512;

// One part of kTileRows rows of a sum block, decoded: [group][row][lane].
inline constexpr std::size_t kDecodedFloats = kBlockGroups * kTileRows * Vector::kWidth;

// Lane totals of a row block and a pass: [row][vector][part][lane].
using LaneTotals = float[kRowBlock * kPass * kGroup];

// The weights that the next tile row will read, asked for line by line while this one is multiplied.
class NextRows {
 public:
  // `steps`: how often step() will be called.
  NextRows(const char* begin, std::size_t stride, std::size_t row_bytes, std::size_t steps)
      : row_(begin),
        stride_(stride),
        row_bytes_(row_bytes),
        rows_(kTileRows),
        lines_a_step_((kTileRows * ((row_bytes + 63) / 64) + steps - 1) / steps) {}

  void step() {
    for (std::size_t i = 0; i < lines_a_step_ && rows_ > 0; ++i) {
      __builtin_prefetch(row_ + offset_);
      offset_ += 64;
      if (offset_ >= row_bytes_) {
        offset_ = 0;
        row_ += stride_;
        --rows_;
      }
    }
  }

 private:
  const char* row_;
  std::size_t stride_;
  std::size_t row_bytes_;
  std::size_t rows_;
  std::size_t lines_a_step_;
  std::size_t offset_ = 0;
};

// Weights of a part as they lie in the matrix.
template <typename Format, std::size_t Part>
struct DirectWeights {
  RowCursor at;

  [[nodiscard]] Vector load(std::size_t row, std::size_t group) const {
    return Format::template decode_part<Part>(
        at.bytes + row * at.stride + group * Format::kGroupBytes,
        at.scales + (Format::kScaled ? row * at.scale_stride + group : 0));
  }

  // Parts [Part, Part + kPartsAtOnce) of a group of the first row, kDecodedFloats apart.
  void decode_to(std::size_t group, float* to) const {
    if constexpr (Format::kPartsAtOnce == 1) {
      load(0, group).store(to);
    } else {
      Vector parts[kParts];
      decode_group<Format>(at.bytes + group * Format::kGroupBytes,
                           at.scales + (Format::kScaled ? group : 0), parts);
      for (std::size_t part = 0; part < kParts; ++part) {
        parts[part].store(to + part * kDecodedFloats);
      }
    }
  }
};

// The same from rows decoded before.
struct DecodedWeights {
  const float* data;

  [[nodiscard]] Vector load(std::size_t row, std::size_t group) const {
    return Vector::load(data + (group * kTileRows + row) * Vector::kWidth);
  }
};

// What a tile works on besides its weights.
struct TileWork {
  const float* x;      // [group][vector][lane] of the part
  std::size_t groups;  // of the sum block
  bool first_block;
  float* totals;  // those of row r and vector t at [(r * kPass + t) * kGroup]
};

// One part of one sum block for `Rows` rows and kTileVectors vectors.
template <std::size_t Rows, typename Weights>
inline void multiply_tile(const Weights& weights, const TileWork& work, NextRows& next) {
  constexpr std::size_t kWidth = Vector::kWidth;
  Vector lanes[Rows][kTileVectors];
  for (auto& row : lanes) {
    for (Vector& lane : row) {
      lane = Vector::zero();
    }
  }
  for (std::size_t g = 0; g < work.groups; ++g) {
    next.step();
    Vector values[kTileVectors];
    for (std::size_t t = 0; t < kTileVectors; ++t) {
      values[t] = Vector::load(work.x + (g * kTileVectors + t) * kWidth);
    }
    for (std::size_t r = 0; r < Rows; ++r) {
      const Vector weight = weights.load(r, g);
      for (std::size_t t = 0; t < kTileVectors; ++t) {
        lanes[r][t] = fma(weight, values[t], lanes[r][t]);
      }
    }
  }
  for (std::size_t r = 0; r < Rows; ++r) {
    for (std::size_t t = 0; t < kTileVectors; ++t) {
      float* total = work.totals + (r * kPass + t) * kGroup;
      const Vector sum = work.first_block ? lanes[r][t] : Vector::load(total) + lanes[r][t];
      sum.store(total);
    }
  }
}

// A pass of a packed batch: the packed vectors of one sum block.
struct PassBlock {
  const float* packed;  // [part][tile][group][vector][lane]
  std::size_t groups;
  std::size_t tiles;
  bool first_block;

  [[nodiscard]] TileWork work(std::size_t part, std::size_t tile, float* totals) const {
    return {packed + (part * tiles + tile) * groups * kTileVectors * Vector::kWidth, groups,
            first_block, totals + tile * kTileVectors * kGroup + part * Vector::kWidth};
  }
};

// Parts [Part, Part + kPartsAtOnce) of `count` rows, at most kTileRows; beyond them the last again.
template <typename Format, std::size_t Part>
void decode_rows(const RowCursor& rows, std::size_t count, std::size_t groups, float* decoded) {
  for (std::size_t r = 0; r < kTileRows; ++r) {
    const DirectWeights<Format, Part> weights{rows.row(smaller(r, count - 1))};
    for (std::size_t g = 0; g < groups; ++g) {
      weights.decode_to(g, decoded + (g * kTileRows + r) * Vector::kWidth);
    }
  }
}

// `count` rows, at most kTileRows, of one sum block times all tiles of a pass, part by part.
template <typename Format, std::size_t Part = 0>
void multiply_decoded(const RowCursor& rows,
                      std::size_t count,
                      const PassBlock& block,
                      float* totals,
                      NextRows& next) {
  if constexpr (Part < kParts) {
    alignas(64) float decoded[Format::kPartsAtOnce * kDecodedFloats];
    decode_rows<Format, Part>(rows, count, block.groups, decoded);
    for (std::size_t i = 0; i < Format::kPartsAtOnce; ++i) {
      const DecodedWeights weights{decoded + i * kDecodedFloats};
      for (std::size_t tile = 0; tile < block.tiles; ++tile) {
        multiply_tile<kTileRows>(weights, block.work(Part + i, tile, totals), next);
      }
    }
    multiply_decoded<Format, Part + Format::kPartsAtOnce>(rows, count, block, totals, next);
  }
}

// The same with weights decoded in registers, for exactly `Rows` rows.
template <typename Format, std::size_t Rows, std::size_t Part = 0>
void multiply_direct(const RowCursor& rows, const PassBlock& block, float* totals, NextRows& next) {
  if constexpr (Part < kParts) {
    for (std::size_t tile = 0; tile < block.tiles; ++tile) {
      multiply_tile<Rows>(DirectWeights<Format, Part>{rows}, block.work(Part, tile, totals), next);
    }
    multiply_direct<Format, Rows, Part + 1>(rows, block, totals, next);
  }
}

// y[t][r] of all rows of a block and all vectors of a pass.
template <typename Format>
void fold_totals(const float* totals, std::size_t rows, std::size_t count, const Outputs& y) {
  constexpr std::size_t kWidth = Vector::kWidth;
  const auto folded = [totals](std::size_t r, std::size_t t) {
    Vector parts[kParts];
    for (std::size_t part = 0; part < kParts; ++part) {
      parts[part] = Vector::load(totals + (r * kPass + t) * kGroup + part * kWidth);
    }
    return Format::fold(parts);
  };
  for (std::size_t t = 0; t < count; ++t) {
    float* out = y.data + t * y.stride;
    std::size_t r = 0;
    for (; r + kWidth <= rows; r += kWidth) {
      Vector sums[kWidth];
      for (std::size_t i = 0; i < kWidth; ++i) {
        sums[i] = folded(r + i, t);
      }
      fold_vectors(sums).store(out + r);
    }
    for (; r < rows; ++r) {
      out[r] = fold_lanes(folded(r, t));
    }
  }
}

// kTileRows rows from `row` on (fewer at the end of the matrix) of the sum block that begins at
// element `first`.
template <typename Format, bool Direct>
void multiply_tile_rows(const typename Format::Matrix& m,
                        std::size_t row,
                        std::size_t first,
                        const PassBlock& block,
                        float* totals) {
  const std::size_t group = first / kGroup;
  RowCursor rows = cursor_at(m, row);
  rows.bytes += group * Format::kGroupBytes;
  rows.scales += Format::kScaled ? group : 0;
  const std::size_t block_bytes = block.groups * Format::kGroupBytes;
  // What comes next: the following rows of this sum block, at the end the first rows of the next one.
  const char* ahead = row + kTileRows < m.rows
                          ? rows.bytes + kTileRows * rows.stride
                          : cursor_at(m, 0).bytes + (group + kBlockGroups) * Format::kGroupBytes;
  NextRows next(ahead, rows.stride, block_bytes, block.tiles * kParts * block.groups);
  const std::size_t count = smaller(kTileRows, m.rows - row);
  if constexpr (!Direct) {
    multiply_decoded<Format>(rows, count, block, totals, next);
  } else if (count == kTileRows) {
    multiply_direct<Format, kTileRows>(rows, block, totals, next);
  } else {
    for (std::size_t r = 0; r < count; ++r) {
      multiply_direct<Format, 1>(rows.row(r), block, totals + r * kPass * kGroup, next);
    }
  }
}

// The rows of a block, `m`, at most kRowBlock, times one pass of `count` vectors.
template <typename Format, bool Direct>
void multiply_row_block(const typename Format::Matrix& m,
                        const float* packed,
                        std::size_t count,
                        const Outputs& y) {
  alignas(64) LaneTotals totals;
  const std::size_t tiles = round_up(count, kTileVectors) / kTileVectors;
  for (std::size_t first = 0; first < m.cols; first += kSumBlock) {
    const PassBlock block{packed + first * tiles * kTileVectors,
                          smaller(kSumBlock, m.cols - first) / kGroup, tiles, first == 0};
    for (std::size_t r = 0; r < m.rows; r += kTileRows) {
      multiply_tile_rows<Format, Direct>(m, r, first, block, totals + r * kPass * kGroup);
    }
  }
  fold_totals<Format>(totals, m.rows, count, y);
}

// Rows [first, first + count) of a matrix.
inline Bf16Matrix rows_of(Bf16Matrix m, std::size_t first, std::size_t count) {
  return {m.data + first * m.stride, count, m.cols, m.stride};
}

inline F32Matrix rows_of(F32Matrix m, std::size_t first, std::size_t count) {
  return {m.data + first * m.stride, count, m.cols, m.stride};
}

inline Mxfp4Matrix rows_of(Mxfp4Matrix m, std::size_t first, std::size_t count) {
  return {m.packed + first * m.packed_stride,
          m.scales + first * m.scale_stride,
          count,
          m.cols,
          m.packed_stride,
          m.scale_stride};
}

template <typename Format>
void multiply_passes(const typename Format::Matrix& m,
                     const float* packed,
                     std::size_t count,
                     const Outputs& y) {
  for (std::size_t row = 0; row < m.rows; row += kRowBlock) {
    const auto block = rows_of(m, row, smaller(kRowBlock, m.rows - row));
    for (std::size_t start = 0; start < count; start += kPass) {
      const std::size_t pass = smaller(kPass, count - start);
      const Outputs out{y.data + start * y.stride + row, y.stride};
      if (pass <= Format::kDirectVectors || m.cols <= kDirectCols) {
        multiply_row_block<Format, true>(block, packed + start * m.cols, pass, out);
      } else {
        multiply_row_block<Format, false>(block, packed + start * m.cols, pass, out);
      }
    }
  }
}

}  // namespace
}  // namespace k3::kernels

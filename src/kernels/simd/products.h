// Products under contract C2, for any Vector. Included by one file per instruction set.
//
// The packed form of a batch holds, for full groups of 32 elements, the lanes in the order of the
// format. One vector, or a width that is no multiple of 32: vector after vector, [group][32], the
// last group padded. Otherwise, in passes of kPass vectors:
//   [pass][block of 1,024 elements][part][tile of kTileVectors][group][vector of the tile][lane]
// so that the innermost loop walks linearly. A tile is padded with zero vectors.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/contract.h"
#include "kernels/kernel_table.h"
#include "kernels/simd/scaled_codes.h"
#include "kernels/simd/vector.h"

namespace k3::kernels {
namespace {

inline constexpr std::size_t kGroup = 32;                        // elements: one per lane
inline constexpr std::size_t kBlockGroups = kSumBlock / kGroup;  // groups of a sum block
inline constexpr std::size_t kPass = 32;                         // vectors that share the L2 cache
inline constexpr std::size_t kRowBlock = 8 * kTileRows;          // rows whose totals are kept
static_assert(kPass % kTileVectors == 0 && kPackGrain % kPass == 0);

constexpr std::size_t round_up(std::size_t value, std::size_t to) {
  return (value + to - 1) / to * to;
}

constexpr std::size_t smaller(std::size_t a, std::size_t b) {
  return a < b ? a : b;
}

// True when the vectors are packed and multiplied one by one.
constexpr bool is_single(std::size_t cols, std::size_t count) {
  return count == 1 || cols == 0 || cols % kGroup != 0;
}

constexpr std::size_t packed_floats(std::size_t cols, std::size_t count) {
  if (is_single(cols, count)) {
    return round_up(cols, kGroup) * count;
  }
  return cols * round_up(count, kTileVectors);
}

// --- packing ---

template <typename Format>
void pack_single(const float* x, std::size_t cols, float* packed) {
  for (std::size_t i = 0; i < round_up(cols, kGroup); ++i) {
    const std::size_t from = i / kGroup * kGroup + Format::kOrder[i % kGroup];
    packed[i] = from < cols ? x[from] : 0.0F;
  }
}

// One part of one sum block of one vector; a null vector is zero. `order`: that of the part.
inline void pack_part(const float* x, const std::uint8_t* order, std::size_t groups, float* to) {
  for (std::size_t g = 0; g < groups; ++g) {
    for (std::size_t lane = 0; lane < Vector::kWidth; ++lane) {
      to[g * kTileVectors * Vector::kWidth + lane] =
          x == nullptr ? 0.0F : x[g * kGroup + order[lane]];
    }
  }
}

// One vector of a pass of `tiles` tiles, into the place of vector `t` of the pass.
template <typename Format>
void pack_tiled(const float* x, std::size_t cols, std::size_t tiles, std::size_t t, float* pass) {
  constexpr std::size_t kWidth = Vector::kWidth;
  for (std::size_t first = 0; first < cols; first += kSumBlock) {
    const std::size_t groups = smaller(kSumBlock, cols - first) / kGroup;
    float* block = pass + first * tiles * kTileVectors;
    for (std::size_t part = 0; part < kParts; ++part) {
      const std::size_t tile = part * tiles + t / kTileVectors;
      pack_part(x == nullptr ? nullptr : x + first, Format::kOrder + part * kWidth, groups,
                block + (tile * groups * kTileVectors + t % kTileVectors) * kWidth);
    }
  }
}

template <typename Format>
void pack(const Batch& x, std::size_t cols, std::size_t first, std::size_t last, float* packed) {
  if (is_single(cols, x.count)) {
    for (std::size_t t = first; t < last; ++t) {
      pack_single<Format>(x.data + t * x.stride, cols, packed + t * round_up(cols, kGroup));
    }
    return;
  }
  for (std::size_t start = first; start < last; start += kPass) {
    const std::size_t count = smaller(kPass, x.count - start);
    const std::size_t tiles = round_up(count, kTileVectors) / kTileVectors;
    for (std::size_t t = 0; t < tiles * kTileVectors; ++t) {
      const float* vector = t < count ? x.data + (start + t) * x.stride : nullptr;
      pack_tiled<Format>(vector, cols, tiles, t, packed + start * cols);
    }
  }
}

// --- one vector ---

// Bytes ahead of the reading position that are asked from memory.
template <typename Format>
constexpr std::size_t prefetch_bytes() {
  return sizeof(typename Format::Matrix) == sizeof(Mxfp4Matrix) ? 1024 : 2048;
}

inline float float_of(std::uint32_t bits) {
  float value = 0.0F;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

// Weight `i` of a row in scalar code.
inline float weight_at(const Bf16Matrix& m, std::size_t row, std::size_t i) {
  return float_of(static_cast<std::uint32_t>(m.data[row * m.stride + i]) << 16);
}

inline float weight_at(const F32Matrix& m, std::size_t row, std::size_t i) {
  return m.data[row * m.stride + i];
}

inline float weight_at(const Mxfp4Matrix& m, std::size_t row, std::size_t i) {
  const unsigned byte = m.packed[row * m.packed_stride + i / 2];
  const unsigned code = i % 2 == 0 ? byte & 15U : byte >> 4;
  const std::uint8_t scale = m.scales[row * m.scale_stride + i / kMxfp4Group];
  return float_of(static_cast<std::uint32_t>(scaled_code_bits(code, scale)) << 16);
}

// Elements from `first` on that make no whole group, lane by lane in scalar code.
template <typename Format>
void add_tail(const typename Format::Matrix& m,
              std::size_t row,
              const float* packed,
              std::size_t first,
              Vector* lanes) {
  float memory[kGroup];
  for (std::size_t part = 0; part < kParts; ++part) {
    lanes[part].store(memory + part * Vector::kWidth);
  }
  for (std::size_t place = 0; place < kGroup; ++place) {
    const std::size_t element = first + Format::kOrder[place];
    if (element < m.cols) {
      memory[place] =
          __builtin_fmaf(weight_at(m, row, element), packed[first + place], memory[place]);
    }
  }
  for (std::size_t part = 0; part < kParts; ++part) {
    lanes[part] = Vector::load(memory + part * Vector::kWidth);
  }
}

// Lanes of `Rows` rows.
template <std::size_t Rows>
using RowLanes = Vector[Rows][kParts];

// Where the streams of a row group read ahead: offset of a group's bytes within a row, and what to
// add once that passes the row's end, to go on in the row that the stream reads next.
template <typename Format, std::size_t Rows>
struct ReadAhead {
  explicit ReadAhead(const typename Format::Matrix& m)
      : row_bytes(m.cols / kGroup * Format::group_bytes()),
        next_row(Rows *
                     static_cast<std::size_t>(static_cast<const char*>(Format::row_bytes(m, 1)) -
                                              static_cast<const char*>(Format::row_bytes(m, 0))) -
                 row_bytes) {}

  [[nodiscard]] std::size_t from(std::size_t group) const {
    const std::size_t offset = group * Format::group_bytes() + prefetch_bytes<Format>();
    return offset >= row_bytes ? offset + next_row : offset;
  }

  std::size_t row_bytes;
  std::size_t next_row;
};

// Adds groups [first, last) of `Rows` rows to their lanes.
template <typename Format, std::size_t Rows>
inline void add_groups(const typename Format::Matrix& m,
                       std::size_t row,
                       const float* packed,
                       std::size_t first,
                       std::size_t last,
                       RowLanes<Rows>& lanes) {
  const ReadAhead<Format, Rows> ahead(m);
  for (std::size_t g = first; g < last; ++g) {
    const std::size_t offset = ahead.from(g);
    Vector x[kParts];
    for (std::size_t part = 0; part < kParts; ++part) {
      x[part] = Vector::load(packed + g * kGroup + part * Vector::kWidth);
    }
    for (std::size_t r = 0; r < Rows; ++r) {
      Vector weights[kParts];
      Format::decode(m, row + r, g, weights);
      __builtin_prefetch(static_cast<const char*>(Format::row_bytes(m, row + r)) + offset);
      for (std::size_t part = 0; part < kParts; ++part) {
        lanes[r][part] = fma(weights[part], x[part], lanes[r][part]);
      }
    }
  }
}

// The lanes of the first block become the totals, those of a later one are added to them.
template <std::size_t Rows>
inline void add_to_totals(bool first_block, const RowLanes<Rows>& lanes, RowLanes<Rows>& totals) {
  for (std::size_t r = 0; r < Rows; ++r) {
    for (std::size_t part = 0; part < kParts; ++part) {
      totals[r][part] = first_block ? lanes[r][part] : totals[r][part] + lanes[r][part];
    }
  }
}

// `Rows` rows from `row` on times one packed vector.
template <typename Format, std::size_t Rows>
void multiply_row_group(const typename Format::Matrix& m,
                        std::size_t row,
                        const float* packed,
                        float* y) {
  RowLanes<Rows> totals;
  const std::size_t groups = m.cols / kGroup;
  for (std::size_t first = 0; first < m.cols || first == 0; first += kSumBlock) {
    RowLanes<Rows> lanes;
    for (auto& row_lanes : lanes) {
      for (Vector& lane : row_lanes) {
        lane = Vector::zero();
      }
    }
    const std::size_t end = smaller(groups, first / kGroup + kBlockGroups);
    add_groups<Format, Rows>(m, row, packed, first / kGroup, end, lanes);
    if (groups * kGroup < m.cols && groups * kGroup < first + kSumBlock) {
      for (std::size_t r = 0; r < Rows; ++r) {
        add_tail<Format>(m, row + r, packed, groups * kGroup, lanes[r]);
      }
    }
    add_to_totals<Rows>(first == 0, lanes, totals);
  }
  for (std::size_t r = 0; r < Rows; ++r) {
    y[r] = Format::reduce(totals[r]);
  }
}

template <typename Format>
void multiply_single(const typename Format::Matrix& m, const float* packed, float* y) {
  std::size_t row = 0;
  for (; row + kSingleRows <= m.rows; row += kSingleRows) {
    multiply_row_group<Format, kSingleRows>(m, row, packed, y + row);
  }
  for (; row < m.rows; ++row) {
    multiply_row_group<Format, 1>(m, row, packed, y + row);
  }
}

// --- many vectors ---

// kTileRows rows of one sum block, decoded: [part][group][row][lane].
using DecodedRows = float[kParts * kBlockGroups * kTileRows * Vector::kWidth];

// Lane totals of a row block and a pass: [row][vector][part][lane].
using LaneTotals = float[kRowBlock * kPass * kGroup];

template <typename Format>
void decode_rows(const typename Format::Matrix& m,
                 std::size_t row,
                 std::size_t first_group,
                 std::size_t groups,
                 float* decoded) {
  for (std::size_t r = 0; r < kTileRows; ++r) {
    const std::size_t source = smaller(row + r, m.rows - 1);  // beyond the end: the last row again
    for (std::size_t g = 0; g < groups; ++g) {
      Vector weights[kParts];
      Format::decode(m, source, first_group + g, weights);
      for (std::size_t part = 0; part < kParts; ++part) {
        weights[part].store(decoded + ((part * groups + g) * kTileRows + r) * Vector::kWidth);
      }
    }
  }
}

// One part of one sum block for kTileRows rows and kTileVectors vectors; totals of row r and vector
// t lie at totals[(r * kPass + t) * kGroup].
inline void multiply_tile(
    const float* weights, const float* x, std::size_t groups, bool first_block, float* totals) {
  constexpr std::size_t kWidth = Vector::kWidth;
  Vector lanes[kTileRows][kTileVectors];
  for (auto& row : lanes) {
    for (Vector& lane : row) {
      lane = Vector::zero();
    }
  }
  for (std::size_t g = 0; g < groups; ++g) {
    Vector values[kTileVectors];
    for (std::size_t t = 0; t < kTileVectors; ++t) {
      values[t] = Vector::load(x + (g * kTileVectors + t) * kWidth);
    }
    for (std::size_t r = 0; r < kTileRows; ++r) {
      const Vector weight = Vector::load(weights + (g * kTileRows + r) * kWidth);
      for (std::size_t t = 0; t < kTileVectors; ++t) {
        lanes[r][t] = fma(weight, values[t], lanes[r][t]);
      }
    }
  }
  for (std::size_t r = 0; r < kTileRows; ++r) {
    for (std::size_t t = 0; t < kTileVectors; ++t) {
      float* total = totals + (r * kPass + t) * kGroup;
      const Vector sum = first_block ? lanes[r][t] : Vector::load(total) + lanes[r][t];
      sum.store(total);
    }
  }
}

// kTileRows decoded rows of one sum block times all tiles of a pass. `block`: the packed block.
inline void multiply_tiles(const float* decoded,
                           const float* block,
                           std::size_t groups,
                           std::size_t tiles,
                           bool first_block,
                           float* totals) {
  constexpr std::size_t kWidth = Vector::kWidth;
  for (std::size_t part = 0; part < kParts; ++part) {
    const float* weights = decoded + part * groups * kTileRows * kWidth;
    for (std::size_t tile = 0; tile < tiles; ++tile) {
      multiply_tile(weights, block + (part * tiles + tile) * groups * kTileVectors * kWidth, groups,
                    first_block, totals + tile * kTileVectors * kGroup + part * kWidth);
    }
  }
}

// The rows of a block, `m`, at most kRowBlock, times one pass of `count` vectors.
template <typename Format>
void multiply_row_block(const typename Format::Matrix& m,
                        const float* packed,
                        std::size_t count,
                        const Outputs& y) {
  alignas(64) LaneTotals totals;
  alignas(64) DecodedRows decoded;
  const std::size_t tiles = round_up(count, kTileVectors) / kTileVectors;
  for (std::size_t first = 0; first < m.cols; first += kSumBlock) {
    const std::size_t groups = smaller(kSumBlock, m.cols - first) / kGroup;
    for (std::size_t r = 0; r < m.rows; r += kTileRows) {
      decode_rows<Format>(m, r, first / kGroup, groups, decoded);
      multiply_tiles(decoded, packed + first * tiles * kTileVectors, groups, tiles, first == 0,
                     totals + r * kPass * kGroup);
    }
  }
  for (std::size_t r = 0; r < m.rows; ++r) {
    for (std::size_t t = 0; t < count; ++t) {
      Vector lanes[kParts];
      for (std::size_t part = 0; part < kParts; ++part) {
        lanes[part] = Vector::load(totals + (r * kPass + t) * kGroup + part * Vector::kWidth);
      }
      y.data[t * y.stride + r] = Format::reduce(lanes);
    }
  }
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
void multiply_batch(const typename Format::Matrix& m,
                    const float* packed,
                    std::size_t count,
                    const Outputs& y) {
  if (is_single(m.cols, count)) {
    for (std::size_t t = 0; t < count; ++t) {
      multiply_single<Format>(m, packed + t * round_up(m.cols, kGroup), y.data + t * y.stride);
    }
    return;
  }
  for (std::size_t row = 0; row < m.rows; row += kRowBlock) {
    const auto block = rows_of(m, row, smaller(kRowBlock, m.rows - row));
    for (std::size_t start = 0; start < count; start += kPass) {
      multiply_row_block<Format>(block, packed + start * m.cols, smaller(kPass, count - start),
                                 {y.data + start * y.stride + row, y.stride});
    }
  }
}

template <typename Format>
constexpr ProductKernels<typename Format::Matrix> product_kernels() {
  return {packed_floats, pack<Format>, multiply_batch<Format>};
}

}  // namespace
}  // namespace k3::kernels

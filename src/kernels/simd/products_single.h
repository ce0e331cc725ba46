// Products under contract C2, for any Vector: rows of a matrix times one packed vector.
//
// kSingleRows rows at once, so that as many chains of multiply-adds run side by side. The rows of a
// group lie a share of the matrix apart, so that each of them is a stream that walks linearly through
// memory from row to row, as hardware prefetches it best, with a prefetch of its own ahead.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/simd/decode.h"
#include "kernels/simd/products_pack.h"
#include "kernels/simd/row_cursor.h"
#include "kernels/simd/scaled_codes.h"

namespace k3::kernels {
namespace {

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

// Where the streams of a row group read ahead: what to add to a position within a row, and what more
// once that passes the row's end, to go on in the row that follows.
template <typename Format>
struct ReadAhead {
  ReadAhead(std::size_t row_stride, std::size_t cols)
      : row_bytes(cols / kGroup * Format::kGroupBytes), gap(row_stride - row_bytes) {}

  [[nodiscard]] std::size_t from(std::size_t group) const {
    const std::size_t offset = group * Format::kGroupBytes + Format::kReadAhead;
    return offset >= row_bytes ? offset + gap : offset;
  }

  std::size_t row_bytes;
  std::size_t gap;
};

// Groups whose weights fill a cache line: they share a prefetch.
inline constexpr std::size_t kLineBytes = 64;

template <typename Format>
inline constexpr std::size_t kLineGroups =
    Format::kGroupBytes < kLineBytes ? kLineBytes / Format::kGroupBytes : 1;

// Adds one group of `Rows` rows to their lanes; `at` and `x` stand at the group.
template <typename Format, std::size_t Rows>
inline void add_group(const RowCursor& at, const float* x, RowLanes<Rows>& lanes) {
  Vector values[kParts];
  for (std::size_t part = 0; part < kParts; ++part) {
    values[part] = Vector::load(x + part * Vector::kWidth);
  }
  for (std::size_t r = 0; r < Rows; ++r) {
    Vector weights[kParts];
    decode_group<Format>(at.bytes + r * at.stride,
                         at.scales + (Format::kScaled ? r * at.scale_stride : 0), weights);
    for (std::size_t part = 0; part < kParts; ++part) {
      lanes[r][part] = fma(weights[part], values[part], lanes[r][part]);
    }
  }
}

// Lanes of groups [first, last) of `Rows` rows, starting at zero. A value of its own, so that it
// stays in registers.
template <typename Format, std::size_t Rows>
inline void sum_groups(const RowCursor& rows,
                       const ReadAhead<Format>& ahead,
                       const float* packed,
                       std::size_t first,
                       std::size_t last,
                       RowLanes<Rows>& out) {
  constexpr std::size_t kStep = kLineGroups<Format>;
  RowLanes<Rows> lanes;
  for (auto& row : lanes) {
    for (Vector& lane : row) {
      lane = Vector::zero();
    }
  }
  std::size_t g = first;
  const auto at = [&rows](std::size_t group) {
    return RowCursor{rows.bytes + group * Format::kGroupBytes, rows.stride,
                     rows.scales + (Format::kScaled ? group : 0), rows.scale_stride};
  };
  for (; g + kStep <= last; g += kStep) {
    const char* next = rows.bytes + ahead.from(g);
    for (std::size_t r = 0; r < Rows; ++r) {
      for (std::size_t line = 0; line < Format::kGroupBytes * kStep; line += kLineBytes) {
        __builtin_prefetch(next + r * rows.stride + line);
      }
    }
    for (std::size_t i = 0; i < kStep; ++i) {
      add_group<Format, Rows>(at(g + i), packed + (g + i) * kGroup, lanes);
    }
  }
  for (; g < last; ++g) {
    add_group<Format, Rows>(at(g), packed + g * kGroup, lanes);
  }
  for (std::size_t r = 0; r < Rows; ++r) {
    for (std::size_t part = 0; part < kParts; ++part) {
      out[r][part] = lanes[r][part];
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

// Rows row, row + apart, ... of `Rows` streams times one packed vector; y[r * apart] of row r.
template <typename Format, std::size_t Rows>
void multiply_row_group(const typename Format::Matrix& m,
                        std::size_t row,
                        std::size_t apart,
                        const float* packed,
                        float* y) {
  RowLanes<Rows> totals;
  RowCursor rows = cursor_at(m, row);
  const ReadAhead<Format> ahead(rows.stride, m.cols);
  rows.stride *= apart;
  rows.scale_stride *= apart;
  const std::size_t groups = m.cols / kGroup;
  for (std::size_t first = 0; first < m.cols || first == 0; first += kSumBlock) {
    RowLanes<Rows> lanes;
    const std::size_t end = smaller(groups, first / kGroup + kBlockGroups);
    sum_groups<Format, Rows>(rows, ahead, packed, first / kGroup, end, lanes);
    if (groups * kGroup < m.cols && groups * kGroup < first + kSumBlock) {
      for (std::size_t r = 0; r < Rows; ++r) {
        add_tail<Format>(m, row + r * apart, packed, groups * kGroup, lanes[r]);
      }
    }
    add_to_totals<Rows>(first == 0, lanes, totals);
  }
  for (std::size_t r = 0; r < Rows; ++r) {
    y[r * apart] = fold_lanes(Format::fold(totals[r]));
  }
}

template <typename Format>
void multiply_single(const typename Format::Matrix& m, const float* packed, float* y) {
  constexpr std::size_t kRows = Format::kSingleRows;
  const std::size_t apart = m.rows / kRows;
  for (std::size_t row = 0; row < apart; ++row) {
    multiply_row_group<Format, kRows>(m, row, apart, packed, y + row);
  }
  for (std::size_t row = apart * kRows; row < m.rows; ++row) {
    multiply_row_group<Format, 1>(m, row, 1, packed, y + row);
  }
}

}  // namespace
}  // namespace k3::kernels

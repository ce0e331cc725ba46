// Sums in double, each in the order of its row, of several rows side by side: an addition waits for
// the one before it in its row alone. Transposed, four rows are one vector of doubles. Included by
// one file per instruction set.
#pragma once

#include <cstddef>

#include "kernels/kernel_table.h"

namespace k3::kernels {
namespace {

inline constexpr std::size_t kRowTile = 4;

using FourFloats [[gnu::vector_size(16)]] = float;
using FourDoubles [[gnu::vector_size(32)]] = double;  // one of each row of a tile

// Elements i to i + 3 of the four rows of a tile: columns[k] is element i + k of each.
inline void load_columns(const float* const* rows, std::size_t i, FourDoubles (&columns)[4]) {
  FourFloats row[kRowTile];
  for (std::size_t r = 0; r < kRowTile; ++r) {
    __builtin_memcpy(&row[r], rows[r] + i, sizeof(row[r]));
  }
  const FourFloats low01 = __builtin_shufflevector(row[0], row[1], 0, 4, 1, 5);
  const FourFloats low23 = __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5);
  const FourFloats high01 = __builtin_shufflevector(row[0], row[1], 2, 6, 3, 7);
  const FourFloats high23 = __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
  columns[0] =
      __builtin_convertvector(__builtin_shufflevector(low01, low23, 0, 1, 4, 5), FourDoubles);
  columns[1] =
      __builtin_convertvector(__builtin_shufflevector(low01, low23, 2, 3, 6, 7), FourDoubles);
  columns[2] =
      __builtin_convertvector(__builtin_shufflevector(high01, high23, 0, 1, 4, 5), FourDoubles);
  columns[3] =
      __builtin_convertvector(__builtin_shufflevector(high01, high23, 2, 3, 6, 7), FourDoubles);
}

// The sums of one row (Number = double) or of the rows of a tile (FourDoubles). Products of two
// float32 are exact in double, so only the additions round.
template <typename Number>
struct PlainSum {
  Number sum = {};

  void add(Number x, float /*weight*/) { sum = sum + x; }
};

template <typename Number>
struct SquareSum {
  Number sum = {};

  void add(Number x, float /*weight*/) { sum = sum + x * x; }
};

template <typename Number>
struct ScoreSum {
  Number squares = {};
  Number products = {};

  void add(Number x, float weight) {
    squares = squares + x * x;
    products = products + x * static_cast<double>(weight);
  }
};

// One row on its own.
template <typename Sum>
Sum sum_row(const float* row, std::size_t width, const float* weight) {
  Sum sum;
  for (std::size_t i = 0; i < width; ++i) {
    sum.add(static_cast<double>(row[i]), weight[i]);
  }
  return sum;
}

// Sums over the elements of `Tiles` tiles of rows. weight: [width], read by ScoreSum alone.
template <std::size_t Tiles, typename Sum>
void sum_tiles(const float* const* rows, std::size_t width, const float* weight, Sum* sums) {
  Sum local[Tiles];
  std::size_t i = 0;
  for (; i + 4 <= width; i += 4) {
    for (std::size_t tile = 0; tile < Tiles; ++tile) {
      FourDoubles columns[4];
      load_columns(rows + tile * kRowTile, i, columns);
      for (std::size_t k = 0; k < 4; ++k) {
        local[tile].add(columns[k], weight[i + k]);
      }
    }
  }
  for (; i < width; ++i) {
    for (std::size_t tile = 0; tile < Tiles; ++tile) {
      FourDoubles column = {};
      for (std::size_t r = 0; r < kRowTile; ++r) {
        column[r] = static_cast<double>(rows[tile * kRowTile + r][i]);
      }
      local[tile].add(column, weight[i]);
    }
  }
  for (std::size_t tile = 0; tile < Tiles; ++tile) {
    sums[tile] = local[tile];
  }
}

// The same for 2 to kSumRows rows; the last one fills the tiles up.
template <typename Sum>
void sum_rows(const RowList& list, const float* weight, Sum (&sums)[kSumRows / kRowTile]) {
  static_assert(kSumRows == 2 * kRowTile);
  const float* rows[kSumRows];
  for (std::size_t r = 0; r < kSumRows; ++r) {
    rows[r] = list.rows[r < list.count ? r : list.count - 1];
  }
  if (list.count > kRowTile) {
    sum_tiles<2>(rows, list.width, weight, sums);
  } else {
    sum_tiles<1>(rows, list.width, weight, sums);
  }
}

// sums[r] of each row under Sum, PlainSum or SquareSum, which read no weights.
template <template <typename> typename Sum>
void list_sums(const RowList& list, double* sums) {
  if (list.count == 1) {
    sums[0] = sum_row<Sum<double>>(list.rows[0], list.width, list.rows[0]).sum;
    return;
  }
  Sum<FourDoubles> tiles[kSumRows / kRowTile];
  sum_rows(list, list.rows[0], tiles);
  for (std::size_t r = 0; r < list.count; ++r) {
    sums[r] = tiles[r / kRowTile].sum[r % kRowTile];
  }
}

inline void score_sums_vector(const RowList& list,
                              const float* weight,
                              double* squares,
                              double* products) {
  if (list.count == 1) {
    const auto sum = sum_row<ScoreSum<double>>(list.rows[0], list.width, weight);
    squares[0] = sum.squares;
    products[0] = sum.products;
    return;
  }
  ScoreSum<FourDoubles> tiles[kSumRows / kRowTile];
  sum_rows(list, weight, tiles);
  for (std::size_t r = 0; r < list.count; ++r) {
    squares[r] = tiles[r / kRowTile].squares[r % kRowTile];
    products[r] = tiles[r / kRowTile].products[r % kRowTile];
  }
}

}  // namespace
}  // namespace k3::kernels

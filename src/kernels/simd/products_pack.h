// Products under contract C2, for any Vector: the packed form of a batch.
//
// The packed form holds, for full groups of 32 elements, the lanes in the order of the format. One
// vector, or a width that is no multiple of 32: vector after vector, [group][32], the last group
// padded. Otherwise, in passes of kPass vectors:
//   [pass][block of 1,024 elements][part][tile of kTileVectors][group][vector of the tile][lane]
// so that the innermost loop walks linearly. A tile is padded with zero vectors.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/contract.h"
#include "kernels/kernel_table.h"
#include "kernels/simd/vector.h"

namespace k3::kernels {
namespace {

inline constexpr std::size_t kGroup = 32;                        // elements: one per lane
inline constexpr std::size_t kBlockGroups = kSumBlock / kGroup;  // groups of a sum block
inline constexpr std::size_t kPass = 32;                         // vectors that share the L2 cache
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

template <typename Format>
void pack_single(const float* x, std::size_t cols, float* packed) {
  for (std::size_t first = 0; first < cols; first += kGroup) {
    for (std::size_t lane = 0; lane < kGroup; ++lane) {
      const std::size_t from = first + Format::kOrder[lane];
      packed[first + lane] = cols - first >= kGroup || from < cols ? x[from] : 0.0F;
    }
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

}  // namespace
}  // namespace k3::kernels

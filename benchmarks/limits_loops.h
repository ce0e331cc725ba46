// The loops of limits.h over the Vector of one instruction set.
#pragma once

#include <cstddef>

#include "benchmarks/limits.h"
#include "kernels/simd/vector.h"

namespace k3::bench {
namespace {

using kernels::Vector;

inline float lane_sum(Vector v) {
  float lanes[Vector::kWidth];
  v.store(lanes);
  float sum = 0.0F;
  for (const float lane : lanes) {
    sum += lane;
  }
  return sum;
}

inline float sum(const float* data, std::size_t count, bool prefetch) {
  constexpr std::size_t kStreams = 4;
  constexpr std::size_t kAhead = 512;  // floats
  const std::size_t part = count / kStreams;
  Vector sums[kStreams][2] = {};
  for (std::size_t i = 0; i + 2 * Vector::kWidth <= part; i += 2 * Vector::kWidth) {
    for (std::size_t s = 0; s < kStreams; ++s) {
      const float* p = data + s * part + i;
      if (prefetch) {
        __builtin_prefetch(p + kAhead);
      }
      sums[s][0] = sums[s][0] + Vector::load(p);
      sums[s][1] = sums[s][1] + Vector::load(p + Vector::kWidth);
    }
  }
  Vector total = Vector::zero();
  for (auto& stream : sums) {
    total = total + stream[0] + stream[1];
  }
  return lane_sum(total);
}

inline constexpr std::size_t kChains = 12;

inline float multiply_add(std::size_t rounds) {
  Vector chains[kChains];
  for (std::size_t c = 0; c < kChains; ++c) {
    chains[c] = Vector::all(static_cast<float>(c));
  }
  const Vector factor = Vector::all(0.999F);
  const Vector term = Vector::all(0.001F);
  for (std::size_t r = 0; r < rounds; ++r) {
    for (Vector& chain : chains) {
      chain = kernels::fma(chain, factor, term);
    }
  }
  Vector total = Vector::zero();
  for (const Vector& chain : chains) {
    total = total + chain;
  }
  return lane_sum(total);
}

constexpr LimitLoops make_limits(const char* name) {
  return {name, sum, multiply_add, static_cast<double>(kChains * Vector::kWidth)};
}

}  // namespace
}  // namespace k3::bench

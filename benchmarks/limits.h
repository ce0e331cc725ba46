// What the machine can do, measured in the same run as the kernels: read bandwidth and float32
// multiply-adds.
#pragma once

#include <cstddef>

namespace k3::bench {

// Loops of one instruction set.
struct LimitLoops {
  const char* name;
  // Sum of `count` floats over four streams, plain or with prefetch; returns it so that it is used.
  float (*sum)(const float* data, std::size_t count, bool prefetch);
  // `rounds` times kFmaPerRound multiply-adds on registers.
  float (*multiply_add)(std::size_t rounds);
  double fma_per_round;
};

const LimitLoops& avx2_limits();
const LimitLoops& avx512_limits();

}  // namespace k3::bench

// Compiled with the flags of its instruction set; see CMakeLists.txt.

#include "benchmarks/limits_loops.h"

namespace k3::bench {

const LimitLoops& avx512_limits() {
  static constexpr LimitLoops kLimits = make_limits("avx512");
  return kLimits;
}

}  // namespace k3::bench

// Constants of the summation contract C2 (docs/numerics.md).
#pragma once

#include <cstddef>

namespace k3::kernels {

inline constexpr std::size_t kLanes = 32;
inline constexpr std::size_t kSumBlock = 1024;  // elements; a multiple of kLanes

}  // namespace k3::kernels

// Exact widening of stored vectors to float32.
#pragma once

#include <cstddef>
#include <span>

#include "base/dtype.h"

namespace k3::runtime {

// out[i] = element i of `bytes`, which holds out.size() elements of BF16, F16 or F32 in any
// alignment. Every value of these types, NaN and subnormals included, is exact in float32.
void widen(DType dtype, std::span<const std::byte> bytes, std::span<float> out);

}  // namespace k3::runtime

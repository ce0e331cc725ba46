// Weights of a group in the order of their format, for any Vector.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/simd/vector.h"

namespace k3::kernels {
namespace {

// out[0] to out[kParts - 1]; what the parts share is computed once.
template <typename Format, std::size_t Part = 0>
inline void decode_group(const char* bytes, const std::uint8_t* scale, Vector* out) {
  if constexpr (Part < kParts) {
    out[Part] = Format::template decode_part<Part>(bytes, scale);
    decode_group<Format, Part + 1>(bytes, scale, out);
  }
}

}  // namespace
}  // namespace k3::kernels

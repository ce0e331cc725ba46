#include "runtime/widen.h"

#include <bit>
#include <cstdint>
#include <cstring>
#include <stdexcept>

namespace k3::runtime {
namespace {

float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
}

float from_f16(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000U) << 16U;
  const std::uint32_t exponent = (bits >> 10U) & 0x1fU;
  const std::uint32_t fraction = bits & 0x3ffU;
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24
    const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  const std::uint32_t wide = exponent == 0x1f ? 0xffU : exponent + (127 - 15);
  return std::bit_cast<float>(sign | (wide << 23U) | (fraction << 13U));
}

template <float (*kConvert)(std::uint16_t)>
void widen_halves(std::span<const std::byte> bytes, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, bytes.data() + i * sizeof(bits), sizeof(bits));
    out[i] = kConvert(bits);
  }
}

}  // namespace

void widen(DType dtype, std::span<const std::byte> bytes, std::span<float> out) {
  if (bytes.size() != out.size() * dtype_size(dtype)) {
    throw std::logic_error("widen: bytes and floats do not match");
  }
  switch (dtype) {
    case DType::kBf16:
      return widen_halves<from_bf16>(bytes, out);
    case DType::kF16:
      return widen_halves<from_f16>(bytes, out);
    case DType::kF32:
      if (!out.empty()) {
        std::memcpy(out.data(), bytes.data(), bytes.size());
      }
      return;
    case DType::kU8:
    case DType::kF8E8M0:
    case DType::kOther:
      throw std::logic_error("widen: not a type of vectors");
  }
}

}  // namespace k3::runtime

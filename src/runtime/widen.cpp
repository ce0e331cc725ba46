#include "runtime/widen.h"

#include <cstdint>
#include <cstring>
#include <stdexcept>

#include "base/float_bits.h"

namespace k3::runtime {
namespace {

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
      return widen_halves<bf16_to_float>(bytes, out);
    case DType::kF16:
      return widen_halves<f16_to_float>(bytes, out);
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

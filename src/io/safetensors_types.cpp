#include "io/safetensors_types.h"

#include <algorithm>
#include <array>

namespace k3::io {
namespace {

struct ElementSize {
  std::string_view name;
  std::uint64_t bytes;
};

// Types that the text model does not use but whose size the format defines.
constexpr std::array<ElementSize, 14> kOtherSizes = {{
    {"BOOL", 1},
    {"I8", 1},
    {"F8_E4M3", 1},
    {"F8_E5M2", 1},
    {"F8_E4M3FNUZ", 1},
    {"F8_E5M2FNUZ", 1},
    {"I16", 2},
    {"U16", 2},
    {"I32", 4},
    {"U32", 4},
    {"I64", 8},
    {"U64", 8},
    {"F64", 8},
    {"C64", 8},
}};

}  // namespace

std::uint64_t element_bytes(DType dtype, std::string_view name) {
  if (dtype != DType::kOther) {
    return dtype_size(dtype);
  }
  const auto* const found =
      std::find_if(kOtherSizes.begin(), kOtherSizes.end(),
                   [name](const ElementSize& entry) { return entry.name == name; });
  return found == kOtherSizes.end() ? 0 : found->bytes;
}

std::optional<std::uint64_t> tensor_bytes(std::span<const std::uint64_t> shape,
                                          std::uint64_t element) {
  if (std::find(shape.begin(), shape.end(), 0U) != shape.end()) {
    return 0;
  }
  std::uint64_t product = element;
  for (const std::uint64_t extent : shape) {
    if (__builtin_mul_overflow(product, extent, &product)) {
      return std::nullopt;
    }
  }
  return product;
}

std::string shape_text(std::span<const std::uint64_t> shape) {
  std::string text = "[";
  for (const std::uint64_t extent : shape) {
    text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
  }
  return text + "]";
}

}  // namespace k3::io

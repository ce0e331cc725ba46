// Sizes of stored tensors by the type names of the safetensors format.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/dtype.h"

namespace k3::io {

// Bytes of one element of a type; 0 when the name is unknown.
[[nodiscard]] std::uint64_t element_bytes(DType dtype, std::string_view name);

// Product of a shape (1 for a scalar) times `element`; nothing when it does not fit 64 bits.
[[nodiscard]] std::optional<std::uint64_t> tensor_bytes(std::span<const std::uint64_t> shape,
                                                        std::uint64_t element);

// "[7168, 128]".
[[nodiscard]] std::string shape_text(std::span<const std::uint64_t> shape);

}  // namespace k3::io

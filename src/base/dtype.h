// Element types of stored tensors, under the names that safetensors gives them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace k3 {

enum class DType : std::uint8_t {
  kBf16,    // "BF16"
  kF32,     // "F32"
  kF16,     // "F16": vectors only
  kU8,      // "U8": packed E2M1 codes, E8M0 scales
  kF8E8M0,  // "F8_E8M0": E8M0 scales under their own name
  kOther,   // any type that the text model does not use
};

// Name as written in a safetensors header; "other" for kOther.
[[nodiscard]] std::string_view dtype_name(DType type) noexcept;

// Inverse of dtype_name(); every unknown name is kOther.
[[nodiscard]] DType dtype_from_name(std::string_view name) noexcept;

// Bytes of one element; 0 for kOther.
[[nodiscard]] std::size_t dtype_size(DType type) noexcept;

}  // namespace k3

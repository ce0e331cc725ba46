// Where consecutive rows of a matrix lie, in bytes. Plain data.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/matrix_types.h"

namespace k3::kernels {
namespace {

struct RowCursor {
  const char* bytes;  // weights of the first row
  std::size_t stride;
  const std::uint8_t* scales;  // of the first row; null for types without
  std::size_t scale_stride;

  [[nodiscard]] RowCursor row(std::size_t r) const {
    return {bytes + r * stride, stride, scales + r * scale_stride, scale_stride};
  }
};

template <typename Element>
RowCursor plain_cursor(const Element* data, std::size_t stride, std::size_t row) {
  return {reinterpret_cast<const char*>(data + row * stride), stride * sizeof(Element), nullptr, 0};
}

inline RowCursor cursor_at(const Bf16Matrix& m, std::size_t row) {
  return plain_cursor(m.data, m.stride, row);
}

inline RowCursor cursor_at(const F32Matrix& m, std::size_t row) {
  return plain_cursor(m.data, m.stride, row);
}

inline RowCursor cursor_at(const Mxfp4Matrix& m, std::size_t row) {
  return {reinterpret_cast<const char*>(m.packed + row * m.packed_stride), m.packed_stride,
          m.scales + row * m.scale_stride, m.scale_stride};
}

}  // namespace
}  // namespace k3::kernels

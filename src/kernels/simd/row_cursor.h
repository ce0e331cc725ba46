// Where consecutive rows of a matrix lie, in bytes. Plain data.
#pragma once

#include <cstddef>
#include <cstdint>

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

}  // namespace
}  // namespace k3::kernels

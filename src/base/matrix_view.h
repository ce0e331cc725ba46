// A view of a matrix of any storage type.
#pragma once

#include <cstddef>
#include <variant>

#include "base/matrix_types.h"

namespace k3 {

using MatrixView = std::variant<Bf16Matrix, F32Matrix, Mxfp4Matrix>;

[[nodiscard]] inline std::size_t rows_of(const MatrixView& view) {
  return std::visit([](const auto& matrix) { return matrix.rows; }, view);
}

[[nodiscard]] inline std::size_t cols_of(const MatrixView& view) {
  return std::visit([](const auto& matrix) { return matrix.cols; }, view);
}

// Rows [first, first + count) of a matrix.
[[nodiscard]] inline Bf16Matrix slice_rows(Bf16Matrix m, std::size_t first, std::size_t count) {
  m.data += first * m.stride;
  m.rows = count;
  return m;
}

[[nodiscard]] inline F32Matrix slice_rows(F32Matrix m, std::size_t first, std::size_t count) {
  m.data += first * m.stride;
  m.rows = count;
  return m;
}

[[nodiscard]] inline Mxfp4Matrix slice_rows(Mxfp4Matrix m, std::size_t first, std::size_t count) {
  m.packed += first * m.packed_stride;
  m.scales += first * m.scale_stride;
  m.rows = count;
  return m;
}

[[nodiscard]] inline MatrixView slice_rows(const MatrixView& view,
                                           std::size_t first,
                                           std::size_t count) {
  return std::visit(
      [first, count](const auto& matrix) { return MatrixView(slice_rows(matrix, first, count)); },
      view);
}

}  // namespace k3

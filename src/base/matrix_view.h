// Views of row-major matrices as they are stored; they own nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>

namespace k3 {

// Elements per MXFP4 scale.
inline constexpr std::size_t kMxfp4Group = 32;

struct Bf16Matrix {
  const std::uint16_t* data = nullptr;  // [rows][stride], upper halves of float32
  std::size_t rows = 0;
  std::size_t cols = 0;
  std::size_t stride = 0;  // elements from row to row
};

struct F32Matrix {
  const float* data = nullptr;  // [rows][stride]
  std::size_t rows = 0;
  std::size_t cols = 0;
  std::size_t stride = 0;  // elements from row to row
};

// E2M1 codes, two a byte with the even element in the low nibble, and one E8M0 scale per 32.
struct Mxfp4Matrix {
  const std::uint8_t* packed = nullptr;  // [rows][packed_stride]
  const std::uint8_t* scales = nullptr;  // [rows][scale_stride]
  std::size_t rows = 0;
  std::size_t cols = 0;
  std::size_t packed_stride = 0;  // bytes from row to row, at least ceil(cols / 2)
  std::size_t scale_stride = 0;   // bytes from row to row, at least ceil(cols / 32)
};

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

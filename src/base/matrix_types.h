// Row-major matrices as they are stored: plain views that own nothing.
#pragma once

#include <cstddef>
#include <cstdint>

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

}  // namespace k3

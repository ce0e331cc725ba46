// Sixteen float32 lanes with AVX-512 (F, BW, DQ, VL). Included by kernels_avx512.cpp alone.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/kernel_table.h"
#include "kernels/simd/scaled_codes.h"

namespace k3::kernels {
namespace {

struct Vector {
  static constexpr std::size_t kWidth = 16;

  __m512 v;

  static Vector zero() { return {_mm512_setzero_ps()}; }

  static Vector all(float value) { return {_mm512_set1_ps(value)}; }

  static Vector load(const float* p) { return {_mm512_loadu_ps(p)}; }

  void store(float* p) const { _mm512_storeu_ps(p, v); }
};

inline Vector operator+(Vector a, Vector b) {
  return {_mm512_add_ps(a.v, b.v)};
}

inline Vector operator-(Vector a, Vector b) {
  return {_mm512_sub_ps(a.v, b.v)};
}

inline Vector operator*(Vector a, Vector b) {
  return {_mm512_mul_ps(a.v, b.v)};
}

inline Vector operator/(Vector a, Vector b) {
  return {_mm512_div_ps(a.v, b.v)};
}

// a * b + c, rounded once.
inline Vector fma(Vector a, Vector b, Vector c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}

inline Vector sign_mask() {
  return {_mm512_set1_ps(-0.0F)};
}

inline Vector negate(Vector a) {
  return {_mm512_xor_ps(a.v, sign_mask().v)};
}

inline Vector magnitude(Vector a) {
  return {_mm512_andnot_ps(sign_mask().v, a.v)};
}

// The magnitude bits of `a` with the sign bit of `b`.
inline Vector copy_sign(Vector a, Vector b) {
  return {_mm512_or_ps(magnitude(a).v, _mm512_and_ps(b.v, sign_mask().v))};
}

// x < low ? low : x, and x > high ? high : x: NaN stays.
inline Vector at_least(Vector x, float low) {
  return {_mm512_max_ps(_mm512_set1_ps(low), x.v)};
}

inline Vector at_most(Vector x, float high) {
  return {_mm512_min_ps(_mm512_set1_ps(high), x.v)};
}

// a < limit ? yes : no
inline Vector select_below(Vector a, float limit, Vector yes, Vector no) {
  const __mmask16 mask = _mm512_cmp_ps_mask(a.v, _mm512_set1_ps(limit), _CMP_LT_OQ);
  return {_mm512_mask_blend_ps(mask, no.v, yes.v)};
}

// p * 2^(h) * 2^(e - h) for e = bits(shifted) - bits(magic), h = e >> 1 (elementary.h).
inline Vector scale_by_power(Vector p, Vector shifted, float magic) {
  const __m512i exponent =
      _mm512_sub_epi32(_mm512_castps_si512(shifted.v), _mm512_castps_si512(_mm512_set1_ps(magic)));
  const __m512i half = _mm512_srai_epi32(exponent, 1);
  const auto power = [](__m512i n) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n, _mm512_set1_epi32(127)), 23));
  };
  return p * Vector{power(half)} * Vector{power(_mm512_sub_epi32(exponent, half))};
}

// Widens sixteen bf16.
inline Vector widen_bf16(const std::uint16_t* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
}

// The tree over sixteen s: s[j] += s[j + 8], + 4, + 2, then s[0] + s[1].
inline float fold_sixteen(__m512 s) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(s), _mm512_extractf32x8_ps(s, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// How the 32 lanes of a group lie in kParts vectors, format by format: element kOrder[i] of the
// group stands at place i of the concatenated vectors. decode() brings a group of weights into that
// order, reduce() is the tree of the contract for it.
inline constexpr std::size_t kParts = 2;

// Rows and vectors of the register tile of batched products, and rows of the one-vector product.
inline constexpr std::size_t kTileRows = 6;
inline constexpr std::size_t kTileVectors = 4;
inline constexpr std::size_t kSingleRows = 4;

// Even elements, then odd ones: what a shift and a mask make of packed pairs.
struct EvenOddOrder {
  static constexpr std::uint8_t kOrder[32] = {0,  2,  4,  6,  8,  10, 12, 14, 16, 18, 20,
                                              22, 24, 26, 28, 30, 1,  3,  5,  7,  9,  11,
                                              13, 15, 17, 19, 21, 23, 25, 27, 29, 31};

  static float reduce(const Vector* t) { return fold_sixteen((t[0] + t[1]).v); }
};

struct Bf16Format : EvenOddOrder {
  using Matrix = Bf16Matrix;

  static const void* row_bytes(const Matrix& m, std::size_t row) { return m.data + row * m.stride; }

  static std::size_t group_bytes() { return 64; }

  static void decode(const Matrix& m, std::size_t row, std::size_t group, Vector* out) {
    const __m512i a = _mm512_loadu_si512(m.data + row * m.stride + group * 32);
    const __m512i high = _mm512_set1_epi32(static_cast<int>(0xFFFF0000U));
    out[0].v = _mm512_castsi512_ps(_mm512_slli_epi32(a, 16));
    out[1].v = _mm512_castsi512_ps(_mm512_and_si512(a, high));
  }
};

struct F32Format {
  using Matrix = F32Matrix;
  static constexpr std::uint8_t kOrder[32] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10,
                                              11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
                                              22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

  static const void* row_bytes(const Matrix& m, std::size_t row) { return m.data + row * m.stride; }

  static std::size_t group_bytes() { return 128; }

  static void decode(const Matrix& m, std::size_t row, std::size_t group, Vector* out) {
    const float* p = m.data + row * m.stride + group * 32;
    out[0] = Vector::load(p);
    out[1] = Vector::load(p + Vector::kWidth);
  }

  static float reduce(const Vector* t) {
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd =
        _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    return fold_sixteen(_mm512_add_ps(_mm512_permutex2var_ps(t[0].v, even, t[1].v),
                                      _mm512_permutex2var_ps(t[0].v, odd, t[1].v)));
  }
};

// scaled_code_bits() as float32, one cache line a scale.
struct ScaledCodes {
  alignas(64) std::uint32_t bits[256][16];
};

constexpr ScaledCodes make_scaled_codes() {
  ScaledCodes codes = {};
  for (unsigned scale = 0; scale < 256; ++scale) {
    for (unsigned code = 0; code < 16; ++code) {
      codes.bits[scale][code] = static_cast<std::uint32_t>(scaled_code_bits(code, scale)) << 16;
    }
  }
  return codes;
}

inline constexpr ScaledCodes kScaledCodes = make_scaled_codes();

struct Mxfp4Format : EvenOddOrder {
  using Matrix = Mxfp4Matrix;

  static const void* row_bytes(const Matrix& m, std::size_t row) {
    return m.packed + row * m.packed_stride;
  }

  static std::size_t group_bytes() { return 16; }

  // The permutation reads four bits of its index, so the codes need no mask.
  static void decode(const Matrix& m, std::size_t row, std::size_t group, Vector* out) {
    const std::uint8_t* p = m.packed + row * m.packed_stride + group * 16;
    const __m512 table = _mm512_load_ps(kScaledCodes.bits[m.scales[row * m.scale_stride + group]]);
    const __m512i codes =
        _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    out[0].v = _mm512_permutexvar_ps(codes, table);
    out[1].v = _mm512_permutexvar_ps(_mm512_srli_epi32(codes, 4), table);
  }
};

}  // namespace
}  // namespace k3::kernels

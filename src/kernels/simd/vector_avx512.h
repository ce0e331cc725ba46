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
inline float fold_lanes(Vector s) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(s.v), _mm512_extractf32x8_ps(s.v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// fold_lanes() of kWidth vectors at once: element i is that of s[i]. Destroys s.
inline Vector fold_vectors(Vector* s) {
  // Lane groups of four, halves of each vector added: [a0 a1 b0 b1], vectors i and i + 8.
  for (std::size_t i = 0; i < 8; ++i) {
    s[i].v = _mm512_add_ps(_mm512_shuffle_f32x4(s[i].v, s[i + 8].v, 0x44),
                           _mm512_shuffle_f32x4(s[i].v, s[i + 8].v, 0xEE));
  }
  // [a b c d] of vectors i, i + 8, i + 4, i + 12
  for (std::size_t i = 0; i < 4; ++i) {
    s[i].v = _mm512_add_ps(_mm512_shuffle_f32x4(s[i].v, s[i + 4].v, 0x88),
                           _mm512_shuffle_f32x4(s[i].v, s[i + 4].v, 0xDD));
  }
  // pairs of each four: [p0 p1 q0 q1] of vectors i and i + 2
  for (std::size_t i = 0; i < 2; ++i) {
    s[i].v = _mm512_add_ps(_mm512_shuffle_ps(s[i].v, s[i + 2].v, 0x44),
                           _mm512_shuffle_ps(s[i].v, s[i + 2].v, 0xEE));
  }
  const __m512 sums = _mm512_add_ps(_mm512_shuffle_ps(s[0].v, s[1].v, 0x88),
                                    _mm512_shuffle_ps(s[0].v, s[1].v, 0xDD));
  // Lane group l holds vectors 0, 2, 1, 3 plus 0, 8, 4, 12.
  return {_mm512_permutexvar_ps(
      _mm512_setr_epi32(0, 2, 1, 3, 8, 10, 9, 11, 4, 6, 5, 7, 12, 14, 13, 15), sums)};
}

// How the 32 lanes of a group lie in kParts vectors, format by format: element kOrder[i] of the
// group stands at place i of the concatenated vectors. decode_part() gives one of them (kPartsAtOnce:
// how many of them a scratch is filled with at a time). fold() is the first step of the contract's
// tree for that order: sums of kWidth lanes that fold_lanes() finishes.
inline constexpr std::size_t kParts = 2;

// Rows and vectors of the register tile of batched products.
inline constexpr std::size_t kTileRows = 6;
inline constexpr std::size_t kTileVectors = 4;

// Even elements, then odd ones: what a shift and a mask make of packed pairs.
struct EvenOddOrder {
  static constexpr std::uint8_t kOrder[32] = {0,  2,  4,  6,  8,  10, 12, 14, 16, 18, 20,
                                              22, 24, 26, 28, 30, 1,  3,  5,  7,  9,  11,
                                              13, 15, 17, 19, 21, 23, 25, 27, 29, 31};

  static Vector fold(const Vector* t) { return t[0] + t[1]; }
};

struct Bf16Format : EvenOddOrder {
  using Matrix = Bf16Matrix;
  static constexpr bool kScaled = false;
  static constexpr std::size_t kGroupBytes = 64;
  static constexpr std::size_t kSingleRows = 4;
  static constexpr std::size_t kReadAhead = 1024;
  static constexpr std::size_t kDirectVectors = 8;
  static constexpr std::size_t kPartsAtOnce = 1;

  template <std::size_t Part>
  static Vector decode_part(const char* bytes, const std::uint8_t* /*scale*/) {
    const __m512i pairs = _mm512_loadu_si512(bytes);
    if constexpr (Part == 0) {
      return {_mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16))};
    }
    return {_mm512_castsi512_ps(
        _mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xFFFF0000U))))};
  }
};

struct F32Format {
  using Matrix = F32Matrix;
  static constexpr std::uint8_t kOrder[32] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10,
                                              11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
                                              22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

  static constexpr bool kScaled = false;
  static constexpr std::size_t kGroupBytes = 128;
  static constexpr std::size_t kSingleRows = 4;
  static constexpr std::size_t kReadAhead = 1024;
  static constexpr std::size_t kDirectVectors = 8;
  static constexpr std::size_t kPartsAtOnce = 1;

  template <std::size_t Part>
  static Vector decode_part(const char* bytes, const std::uint8_t* /*scale*/) {
    return {_mm512_loadu_ps(bytes + Part * sizeof(__m512))};
  }

  static Vector fold(const Vector* t) {
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd =
        _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    return {_mm512_add_ps(_mm512_permutex2var_ps(t[0].v, even, t[1].v),
                          _mm512_permutex2var_ps(t[0].v, odd, t[1].v))};
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

struct Mxfp4Format {
  using Matrix = Mxfp4Matrix;
  static constexpr std::uint8_t kOrder[32] = {0,  8,  16, 24, 1,  9,  17, 25, 2,  10, 18,
                                              26, 3,  11, 19, 27, 4,  12, 20, 28, 5,  13,
                                              21, 29, 6,  14, 22, 30, 7,  15, 23, 31};
  static constexpr bool kScaled = true;
  static constexpr std::size_t kGroupBytes = 16;
  static constexpr std::size_t kSingleRows = 4;
  static constexpr std::size_t kReadAhead = 1024;
  static constexpr std::size_t kDirectVectors = 8;
  static constexpr std::size_t kPartsAtOnce = 1;

  // The four words of a group, in every lane group.
  static __m512i words(const char* bytes) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
  }

  // Lane group l of part p gets nibble 4p + l of each word. The permutation reads four bits of its
  // index, so the codes need no mask; one shuffle a part, where widening bytes takes three for two.
  template <std::size_t Part>
  static Vector values(__m512i words, __m512 table) {
    const __m512i first = _mm512_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12);
    const __m512i shift = Part == 0 ? first : _mm512_add_epi32(first, _mm512_set1_epi32(16));
    return {_mm512_permutexvar_ps(_mm512_srlv_epi32(words, shift), table)};
  }

  static __m512 table(const std::uint8_t* scale) {
    return _mm512_load_ps(kScaledCodes.bits[*scale]);
  }

  template <std::size_t Part>
  static Vector decode_part(const char* bytes, const std::uint8_t* scale) {
    return values<Part>(words(bytes), table(scale));
  }

  static Vector fold(const Vector* t) {
    // [s0 s4 s8 s12 | s1 s5 ... | s2 s6 ... | s3 s7 ...]
    const __m512 sums = _mm512_add_ps(_mm512_shuffle_f32x4(t[0].v, t[1].v, 0x88),
                                      _mm512_shuffle_f32x4(t[0].v, t[1].v, 0xDD));
    return {_mm512_permutexvar_ps(
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), sums)};
  }
};

}  // namespace
}  // namespace k3::kernels

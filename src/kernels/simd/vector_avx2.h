// Eight float32 lanes with AVX2 and FMA. Included by kernels_avx2.cpp alone.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/kernel_table.h"
#include "kernels/simd/scaled_codes.h"

namespace k3::kernels {
namespace {

struct Vector {
  static constexpr std::size_t kWidth = 8;

  __m256 v;

  static Vector zero() { return {_mm256_setzero_ps()}; }

  static Vector all(float value) { return {_mm256_set1_ps(value)}; }

  static Vector load(const float* p) { return {_mm256_loadu_ps(p)}; }

  void store(float* p) const { _mm256_storeu_ps(p, v); }
};

inline Vector operator+(Vector a, Vector b) {
  return {_mm256_add_ps(a.v, b.v)};
}

inline Vector operator-(Vector a, Vector b) {
  return {_mm256_sub_ps(a.v, b.v)};
}

inline Vector operator*(Vector a, Vector b) {
  return {_mm256_mul_ps(a.v, b.v)};
}

inline Vector operator/(Vector a, Vector b) {
  return {_mm256_div_ps(a.v, b.v)};
}

// a * b + c, rounded once.
inline Vector fma(Vector a, Vector b, Vector c) {
  return {_mm256_fmadd_ps(a.v, b.v, c.v)};
}

inline Vector sign_mask() {
  return {_mm256_set1_ps(-0.0F)};
}

inline Vector negate(Vector a) {
  return {_mm256_xor_ps(a.v, sign_mask().v)};
}

inline Vector magnitude(Vector a) {
  return {_mm256_andnot_ps(sign_mask().v, a.v)};
}

// The magnitude bits of `a` with the sign bit of `b`.
inline Vector copy_sign(Vector a, Vector b) {
  return {_mm256_or_ps(magnitude(a).v, _mm256_and_ps(b.v, sign_mask().v))};
}

// x < low ? low : x, and x > high ? high : x: NaN stays.
inline Vector at_least(Vector x, float low) {
  return {_mm256_max_ps(_mm256_set1_ps(low), x.v)};
}

inline Vector at_most(Vector x, float high) {
  return {_mm256_min_ps(_mm256_set1_ps(high), x.v)};
}

// a < limit ? yes : no
inline Vector select_below(Vector a, float limit, Vector yes, Vector no) {
  const __m256 mask = _mm256_cmp_ps(a.v, _mm256_set1_ps(limit), _CMP_LT_OQ);
  return {_mm256_blendv_ps(no.v, yes.v, mask)};
}

// p * 2^(h) * 2^(e - h) for e = bits(shifted) - bits(magic), h = e >> 1 (elementary.h).
inline Vector scale_by_power(Vector p, Vector shifted, float magic) {
  const __m256i exponent =
      _mm256_sub_epi32(_mm256_castps_si256(shifted.v), _mm256_castps_si256(_mm256_set1_ps(magic)));
  const __m256i half = _mm256_srai_epi32(exponent, 1);
  const auto power = [](__m256i n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
  };
  return p * Vector{power(half)} * Vector{power(_mm256_sub_epi32(exponent, half))};
}

// Widens eight bf16.
inline Vector widen_bf16(const std::uint16_t* p) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16))};
}

// The tree over eight s: s[j] += s[j + 4], s[j] += s[j + 2], s[0] + s[1].
inline float fold_lanes(Vector s) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(s.v), _mm256_extractf128_ps(s.v, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// fold_lanes() of kWidth vectors at once: element i is that of s[i]. Destroys s.
inline Vector fold_vectors(Vector* s) {
  // [a b]: the halves of vectors i and i + 4 added
  for (std::size_t i = 0; i < 4; ++i) {
    s[i].v = _mm256_add_ps(_mm256_permute2f128_ps(s[i].v, s[i + 4].v, 0x20),
                           _mm256_permute2f128_ps(s[i].v, s[i + 4].v, 0x31));
  }
  // [p0 p1 q0 q1] of vectors i and i + 2
  for (std::size_t i = 0; i < 2; ++i) {
    s[i].v = _mm256_add_ps(_mm256_shuffle_ps(s[i].v, s[i + 2].v, 0x44),
                           _mm256_shuffle_ps(s[i].v, s[i + 2].v, 0xEE));
  }
  const __m256 sums = _mm256_add_ps(_mm256_shuffle_ps(s[0].v, s[1].v, 0x88),
                                    _mm256_shuffle_ps(s[0].v, s[1].v, 0xDD));
  return {_mm256_permute_ps(sums, 0xD8)};  // vectors 0, 2, 1, 3 in each half
}

// How the 32 lanes of a group lie in kParts vectors, format by format: element kOrder[i] of the
// group stands at place i of the concatenated vectors. decode_part() gives one of them (kPartsAtOnce:
// how many of them a scratch is filled with at a time). fold() is the first steps of the contract's
// tree for that order: sums of kWidth lanes that fold_lanes() finishes.
inline constexpr std::size_t kParts = 4;

// Rows and vectors of the register tile of batched products.
inline constexpr std::size_t kTileRows = 6;
inline constexpr std::size_t kTileVectors = 2;

struct Bf16Format {
  using Matrix = Bf16Matrix;
  static constexpr std::uint8_t kOrder[32] = {0,  2,  4,  6,  8,  10, 12, 14, 1,  3,  5,
                                              7,  9,  11, 13, 15, 16, 18, 20, 22, 24, 26,
                                              28, 30, 17, 19, 21, 23, 25, 27, 29, 31};

  static constexpr bool kScaled = false;
  static constexpr std::size_t kGroupBytes = 64;
  static constexpr std::size_t kSingleRows = 4;
  static constexpr std::size_t kReadAhead = 2048;
  static constexpr std::size_t kDirectVectors = 8;
  static constexpr std::size_t kPartsAtOnce = 1;

  template <std::size_t Part>
  static Vector decode_part(const char* bytes, const std::uint8_t* /*scale*/) {
    const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes) + Part / 2);
    if constexpr (Part % 2 == 0) {
      return {_mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16))};
    }
    return {_mm256_castsi256_ps(
        _mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xFFFF0000U))))};
  }

  static Vector fold(const Vector* t) { return (t[0] + t[1]) + (t[2] + t[3]); }
};

struct F32Format {
  using Matrix = F32Matrix;
  static constexpr std::uint8_t kOrder[32] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10,
                                              11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
                                              22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

  static constexpr bool kScaled = false;
  static constexpr std::size_t kGroupBytes = 128;
  static constexpr std::size_t kSingleRows = 4;
  static constexpr std::size_t kReadAhead = 2048;
  static constexpr std::size_t kDirectVectors = 8;
  static constexpr std::size_t kPartsAtOnce = 1;

  template <std::size_t Part>
  static Vector decode_part(const char* bytes, const std::uint8_t* /*scale*/) {
    return Vector::load(reinterpret_cast<const float*>(bytes) + Part * Vector::kWidth);
  }

  static Vector fold(const Vector* t) {
    // [s0 s1 s4 s5 | s2 s3 s6 s7] and the same of s8 to s15
    const __m256 low = _mm256_hadd_ps(t[0].v, t[1].v);
    const __m256 high = _mm256_hadd_ps(t[2].v, t[3].v);
    return {
        _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(_mm256_add_ps(low, high)), 0xD8))};
  }
};

// The bytes of scaled_code_bits(), apart, for byte shuffles.
struct ScaledCodes {
  alignas(16) std::uint8_t low[256][16];
  alignas(16) std::uint8_t high[256][16];
};

constexpr ScaledCodes make_scaled_codes() {
  ScaledCodes codes = {};
  for (unsigned scale = 0; scale < 256; ++scale) {
    for (unsigned code = 0; code < 16; ++code) {
      codes.low[scale][code] = static_cast<std::uint8_t>(scaled_code_bits(code, scale));
      codes.high[scale][code] = static_cast<std::uint8_t>(scaled_code_bits(code, scale) >> 8);
    }
  }
  return codes;
}

inline constexpr ScaledCodes kScaledCodes = make_scaled_codes();

struct Mxfp4Format {
  using Matrix = Mxfp4Matrix;
  static constexpr std::uint8_t kOrder[32] = {0,  4,  8,  12, 1,  5,  9,  13, 2,  6,  10,
                                              14, 3,  7,  11, 15, 16, 20, 24, 28, 17, 21,
                                              25, 29, 18, 22, 26, 30, 19, 23, 27, 31};

  static constexpr bool kScaled = true;
  static constexpr std::size_t kGroupBytes = 16;
  static constexpr std::size_t kSingleRows = 2;
  static constexpr std::size_t kReadAhead = 1024;
  static constexpr std::size_t kDirectVectors = 2;  // decoding one part costs as much as all
  static constexpr std::size_t kPartsAtOnce = kParts;

  static __m256i both_halves(const void* p) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  }

  // bf16 of a group: elements 0 to 7 and 8 to 15 of the even (low half) and odd elements' codes.
  struct Values {
    __m256i first;
    __m256i second;
  };

  static Values values(const char* bytes, const std::uint8_t* scale) {
    // even elements' codes in the low half, odd ones' in the high half
    const __m256i nibbles =
        _mm256_and_si256(_mm256_srlv_epi64(both_halves(bytes), _mm256_setr_epi64x(0, 0, 4, 4)),
                         _mm256_set1_epi8(15));
    const __m256i low = _mm256_shuffle_epi8(both_halves(kScaledCodes.low[*scale]), nibbles);
    const __m256i high = _mm256_shuffle_epi8(both_halves(kScaledCodes.high[*scale]), nibbles);
    return {_mm256_unpacklo_epi8(low, high), _mm256_unpackhi_epi8(low, high)};
  }

  static Vector lower(__m256i pairs) { return {_mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16))}; }

  static Vector upper(__m256i pairs) {
    return {_mm256_castsi256_ps(
        _mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xFFFF0000U))))};
  }

  template <std::size_t Part>
  static Vector decode_part(const char* bytes, const std::uint8_t* scale) {
    const Values v = values(bytes, scale);
    const __m256i pairs = Part < 2 ? v.first : v.second;
    return Part % 2 == 0 ? lower(pairs) : upper(pairs);
  }

  static Vector fold(const Vector* t) {
    // The halves of a vector hold the even and the odd lanes of its pairs.
    const auto pairs = [](Vector a) {
      return _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
    };
    const __m128 even = _mm_add_ps(pairs(t[0]), pairs(t[2]));  // [s0 s2 s4 s6] += [s8 ...]
    const __m128 odd = _mm_add_ps(pairs(t[1]), pairs(t[3]));   // [s1 s3 s5 s7] += [s9 ...]
    return {_mm256_set_m128(_mm_unpackhi_ps(even, odd), _mm_unpacklo_ps(even, odd))};
  }
};

}  // namespace
}  // namespace k3::kernels

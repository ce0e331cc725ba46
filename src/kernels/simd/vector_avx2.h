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

// s[j] += s[j + 4], s[j] += s[j + 2], s[0] + s[1] of eight s.
inline float fold_eight(__m256 s) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// How the 32 lanes of a group lie in kParts vectors, format by format: element kOrder[i] of the
// group stands at place i of the concatenated vectors. decode() brings a group of weights into that
// order, reduce() is the tree of the contract for it.
inline constexpr std::size_t kParts = 4;

// Rows and vectors of the register tile of batched products, and rows of the one-vector product.
inline constexpr std::size_t kTileRows = 6;
inline constexpr std::size_t kTileVectors = 2;
inline constexpr std::size_t kSingleRows = 2;

struct Bf16Format {
  using Matrix = Bf16Matrix;
  static constexpr std::uint8_t kOrder[32] = {0,  2,  4,  6,  8,  10, 12, 14, 1,  3,  5,
                                              7,  9,  11, 13, 15, 16, 18, 20, 22, 24, 26,
                                              28, 30, 17, 19, 21, 23, 25, 27, 29, 31};

  static const void* row_bytes(const Matrix& m, std::size_t row) { return m.data + row * m.stride; }

  static std::size_t group_bytes() { return 64; }

  static void decode(const Matrix& m, std::size_t row, std::size_t group, Vector* out) {
    const auto* p = reinterpret_cast<const __m256i*>(m.data + row * m.stride + group * 32);
    const __m256i high = _mm256_set1_epi32(static_cast<int>(0xFFFF0000U));
    const __m256i a = _mm256_loadu_si256(p);
    const __m256i b = _mm256_loadu_si256(p + 1);
    out[0].v = _mm256_castsi256_ps(_mm256_slli_epi32(a, 16));
    out[1].v = _mm256_castsi256_ps(_mm256_and_si256(a, high));
    out[2].v = _mm256_castsi256_ps(_mm256_slli_epi32(b, 16));
    out[3].v = _mm256_castsi256_ps(_mm256_and_si256(b, high));
  }

  static float reduce(const Vector* t) { return fold_eight(((t[0] + t[1]) + (t[2] + t[3])).v); }
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
    for (std::size_t part = 0; part < kParts; ++part) {
      out[part] = Vector::load(p + part * Vector::kWidth);
    }
  }

  static float reduce(const Vector* t) {
    // [s0 s1 s4 s5 | s2 s3 s6 s7] and the same of s8 to s15
    const __m256 low = _mm256_hadd_ps(t[0].v, t[1].v);
    const __m256 high = _mm256_hadd_ps(t[2].v, t[3].v);
    const __m256 eight = _mm256_add_ps(low, high);
    const __m256 four = _mm256_add_ps(eight, _mm256_permute_ps(eight, 0x4E));  // s[j] += s[j+4]
    const __m128 two = _mm_add_ps(_mm256_castps256_ps128(four), _mm256_extractf128_ps(four, 1));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
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

  static const void* row_bytes(const Matrix& m, std::size_t row) {
    return m.packed + row * m.packed_stride;
  }

  static std::size_t group_bytes() { return 16; }

  static void decode(const Matrix& m, std::size_t row, std::size_t group, Vector* out) {
    const std::uint8_t* p = m.packed + row * m.packed_stride + group * 16;
    const std::uint8_t scale = m.scales[row * m.scale_stride + group];
    // even elements' codes in the low half, odd ones' in the high half
    const __m256i bytes =
        _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    const __m256i nibbles = _mm256_and_si256(
        _mm256_srlv_epi64(bytes, _mm256_setr_epi64x(0, 0, 4, 4)), _mm256_set1_epi8(15));
    const auto table = [](const std::uint8_t* t) {
      return _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(t)));
    };
    const __m256i low = _mm256_shuffle_epi8(table(kScaledCodes.low[scale]), nibbles);
    const __m256i high = _mm256_shuffle_epi8(table(kScaledCodes.high[scale]), nibbles);
    const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xFFFF0000U));
    const __m256i first = _mm256_unpacklo_epi8(low, high);
    const __m256i second = _mm256_unpackhi_epi8(low, high);
    out[0].v = _mm256_castsi256_ps(_mm256_slli_epi32(first, 16));
    out[1].v = _mm256_castsi256_ps(_mm256_and_si256(first, upper));
    out[2].v = _mm256_castsi256_ps(_mm256_slli_epi32(second, 16));
    out[3].v = _mm256_castsi256_ps(_mm256_and_si256(second, upper));
  }

  static float reduce(const Vector* t) {
    // The halves of a vector hold the even and the odd lanes of its pairs.
    const auto pairs = [](Vector a) {
      return _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
    };
    const __m128 even = _mm_add_ps(pairs(t[0]), pairs(t[2]));          // [s0 s2 s4 s6] += [s8 ...]
    const __m128 odd = _mm_add_ps(pairs(t[1]), pairs(t[3]));           // [s1 s3 s5 s7] += [s9 ...]
    const __m128 even4 = _mm_add_ps(even, _mm_movehl_ps(even, even));  // s[j] += s[j+4]
    const __m128 odd4 = _mm_add_ps(odd, _mm_movehl_ps(odd, odd));
    const __m128 s0 = _mm_add_ss(even4, _mm_movehdup_ps(even4));  // s[j] += s[j+2]
    const __m128 s1 = _mm_add_ss(odd4, _mm_movehdup_ps(odd4));
    return _mm_cvtss_f32(_mm_add_ss(s0, s1));
  }
};

}  // namespace
}  // namespace k3::kernels

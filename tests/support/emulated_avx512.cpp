// The AVX-512 kernels with every intrinsic emulated by SIMDe, so that their bits are tested on
// machines without AVX-512. Compiled with -mavx2 -mfma, which keeps fused operations fused.

// NOLINTBEGIN(readability-identifier-naming,bugprone-reserved-identifier): names of others
#define SIMDE_ENABLE_NATIVE_ALIASES
// The aliases must come before what uses them.
// clang-format off
#include <simde/x86/avx512.h>
#include <simde/x86/fma.h>

// What SIMDe 0.7.4 lacks.
static inline simde__m512i from_halves(__m256i low, __m256i high) {
  return simde_mm512_inserti64x4(simde_mm512_castsi256_si512(low), high, 1);
}

static inline simde__m512i shift_right_arithmetic(simde__m512i a, unsigned int count) {
  const int n = static_cast<int>(count);
  return from_halves(simde_mm256_srai_epi32(simde_mm512_extracti64x4_epi64(a, 0), n),
                     simde_mm256_srai_epi32(simde_mm512_extracti64x4_epi64(a, 1), n));
}

static inline simde__m512i widen_words(__m256i a) {
  return from_halves(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(a)),
                     _mm256_cvtepu16_epi32(_mm256_extracti128_si256(a, 1)));
}

static inline simde__m512i widen_bytes(__m128i a) {
  return from_halves(_mm256_cvtepu8_epi32(a), _mm256_cvtepu8_epi32(_mm_srli_si128(a, 8)));
}

template <int Half>
inline __m256 half_of(simde__m512 a) {
  return simde_mm256_castsi256_ps(simde_mm512_extracti64x4_epi64(simde_mm512_castps_si512(a), Half));
}

template <int Control>
inline simde__m512 shuffle_quarters(simde__m512 a, simde__m512 b) {
  alignas(64) float from[2][16];
  alignas(64) float to[16];
  simde_mm512_storeu_ps(from[0], a);
  simde_mm512_storeu_ps(from[1], b);
  for (int quarter = 0; quarter < 4; ++quarter) {
    for (int i = 0; i < 4; ++i) {
      to[quarter * 4 + i] = from[quarter / 2][(Control >> (2 * quarter) & 3) * 4 + i];
    }
  }
  return simde_mm512_loadu_ps(to);
}

#define _mm512_shuffle_f32x4(a, b, control) shuffle_quarters<control>(a, b)
#define _mm512_extractf32x8_ps(a, half) half_of<half>(a)
#define _mm512_srai_epi32 shift_right_arithmetic
#define _mm512_cvtepu16_epi32 widen_words
#define _mm512_cvtepu8_epi32 widen_bytes
// NOLINTEND(readability-identifier-naming,bugprone-reserved-identifier)

#include "kernels/simd/table.h"

// clang-format on

namespace k3::kernels {

const KernelTable& emulated_avx512_table();

const KernelTable& emulated_avx512_table() {
  static constexpr KernelTable kTable = make_table("avx512_emulated");
  return kTable;
}

}  // namespace k3::kernels

#include "benchmarks/yardstick.h"

#include <immintrin.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace k3::bench {
namespace {

constexpr std::size_t kGroup = 32;

struct Tables {
  alignas(16) std::array<std::array<double, 2>, 256> pairs = {};  // the two values of a byte
  std::array<double, 256> scales = {};
};

Tables make_tables() {
  constexpr std::array<double, 16> kValues = {0.0,  0.5,  1.0,  1.5,  2.0,  3.0,  4.0,  6.0,
                                              -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0};
  Tables tables;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    tables.pairs[byte] = {kValues[byte & 15U], kValues[byte >> 4U]};
    tables.scales[byte] = std::ldexp(1.0, static_cast<int>(byte) - 127);
  }
  return tables;
}

double group_sum(const Tables& tables, const std::uint8_t* bytes, const double* x) {
  constexpr std::size_t kChains = 4;
  __m128d lanes[kChains] = {};
  for (std::size_t first = 0; first < kGroup / 2; first += kChains) {
    for (std::size_t i = 0; i < kChains; ++i) {
      const __m128d pair = _mm_load_pd(tables.pairs[bytes[first + i]].data());
      lanes[i] = _mm_fmadd_pd(pair, _mm_loadu_pd(x + 2 * (first + i)), lanes[i]);
    }
  }
  const __m128d sum = _mm_add_pd(_mm_add_pd(lanes[0], lanes[2]), _mm_add_pd(lanes[1], lanes[3]));
  return _mm_cvtsd_f64(_mm_add_sd(sum, _mm_unpackhi_pd(sum, sum)));
}

}  // namespace

void c_engine_multiply(const Mxfp4Matrix& matrix, const double* x, float* y) {
  static const Tables kTables = make_tables();
  for (std::size_t r = 0; r < matrix.rows; ++r) {
    const std::uint8_t* bytes = matrix.packed + r * matrix.packed_stride;
    const std::uint8_t* scales = matrix.scales + r * matrix.scale_stride;
    double sum = 0.0;
    for (std::size_t g = 0; g < matrix.cols / kGroup; ++g) {
      sum += group_sum(kTables, bytes + g * kGroup / 2, x + g * kGroup) * kTables.scales[scales[g]];
    }
    y[r] = static_cast<float>(sum);
  }
}

}  // namespace k3::bench

// Test data and comparisons of float32 arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include <gtest/gtest.h>

namespace k3::test {

// Equal in every bit, NaN payloads and signs of zero included.
[[nodiscard]] testing::AssertionResult same_bits(std::span<const float> a,
                                                 std::span<const float> b);

// Every |found - expected| at most `tolerance`; names the worst element otherwise.
[[nodiscard]] testing::AssertionResult within(std::span<const float> found,
                                              std::span<const float> expected,
                                              double tolerance);

[[nodiscard]] double largest_difference(std::span<const float> a, std::span<const float> b);
[[nodiscard]] double largest_magnitude(std::span<const float> values);

// Normal values; the seed is part of the test.
[[nodiscard]] std::vector<float> normal_values(std::size_t count,
                                               unsigned seed,
                                               float sigma = 1.0F);

// Normal values with denormals, large outliers and zeros of both signs strewn in.
[[nodiscard]] std::vector<float> rough_values(std::size_t count, unsigned seed);

[[nodiscard]] std::vector<std::uint8_t> random_bytes(std::size_t count, unsigned seed);

// The bf16 pattern nearest to zero from `value` (truncation).
[[nodiscard]] std::uint16_t to_bf16(float value);

[[nodiscard]] std::vector<std::uint16_t> to_bf16(std::span<const float> values);

// For a scope: the number of threads, and that they share even the smallest work.
class ScopedThreads {
 public:
  explicit ScopedThreads(int threads);
  ~ScopedThreads();
  ScopedThreads(const ScopedThreads&) = delete;
  ScopedThreads& operator=(const ScopedThreads&) = delete;

 private:
  int saved_threads_;
  std::size_t saved_work_;
};

}  // namespace k3::test

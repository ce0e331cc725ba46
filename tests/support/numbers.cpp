#include "support/numbers.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/parallel.h"

namespace k3::test {

testing::AssertionResult same_bits(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) {
    return testing::AssertionFailure() << a.size() << " values against " << b.size();
  }
  if (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0) {
    return testing::AssertionSuccess();
  }
  std::size_t differing = 0;
  std::size_t first = a.size();
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i])) {
      first = std::min(first, i);
      ++differing;
    }
  }
  return testing::AssertionFailure() << differing << " of " << a.size() << " differ, first at "
                                     << first << ": " << a[first] << " against " << b[first];
}

double largest_difference(std::span<const float> a, std::span<const float> b) {
  double worst = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(difference <= worst)) {  // takes NaN too
      worst = difference;
    }
  }
  return worst;
}

double largest_magnitude(std::span<const float> values) {
  double largest = 0.0;
  for (const float value : values) {
    largest = std::max(largest, std::fabs(static_cast<double>(value)));
  }
  return largest;
}

testing::AssertionResult within(std::span<const float> found,
                                std::span<const float> expected,
                                double tolerance) {
  if (found.size() != expected.size()) {
    return testing::AssertionFailure() << found.size() << " values, expected " << expected.size();
  }
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double difference =
        std::fabs(static_cast<double>(found[i]) - static_cast<double>(expected[i]));
    const bool both_infinite = std::isinf(found[i]) && found[i] == expected[i];
    if (!(difference <= tolerance) && !both_infinite) {
      return testing::AssertionFailure()
             << "value " << i << " is " << found[i] << ", expected " << expected[i]
             << ", off by more than " << tolerance << " (largest difference "
             << largest_difference(found, expected) << ")";
    }
  }
  return testing::AssertionSuccess();
}

std::vector<float> normal_values(std::size_t count, unsigned seed, float sigma) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, sigma);
  std::vector<float> values(count);
  std::generate(values.begin(), values.end(), [&] { return normal(random); });
  return values;
}

std::vector<float> rough_values(std::size_t count, unsigned seed) {
  std::vector<float> values = normal_values(count, seed);
  std::mt19937 random(seed + 1);
  for (float& value : values) {
    switch (random() % 16) {
      case 0:
        value *= 0x1p-140F;  // denormal
        break;
      case 1:
        value *= 1000.0F;
        break;
      case 2:
        value = 0.0F;
        break;
      case 3:
        value = -0.0F;
        break;
      default:
        break;
    }
  }
  return values;
}

std::vector<std::uint8_t> random_bytes(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::uint8_t> bytes(count);
  std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<std::uint8_t>(random()); });
  return bytes;
}

std::uint16_t to_bf16(float value) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
}

std::vector<std::uint16_t> to_bf16(std::span<const float> values) {
  std::vector<std::uint16_t> bits(values.size());
  std::transform(values.begin(), values.end(), bits.begin(),
                 [](float value) { return to_bf16(value); });
  return bits;
}

ScopedThreads::ScopedThreads(int threads)
    : saved_threads_(thread_count()), saved_work_(min_parallel_work().exchange(0)) {
  set_thread_count(threads);
}

ScopedThreads::~ScopedThreads() {
  set_thread_count(saved_threads_);
  min_parallel_work() = saved_work_;
}

}  // namespace k3::test

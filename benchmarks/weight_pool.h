// Weights to measure products with, and how long work takes.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/parallel.h"

namespace k3::bench {

// Larger than any cache.
inline constexpr std::size_t kPoolBytes = std::size_t{2147} << 20;

inline double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

inline double median_seconds(std::size_t rounds, const std::function<void()>& work) {
  std::vector<double> seconds(rounds);
  std::ranges::generate(seconds, [&] { return seconds_of(work); });
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(rounds / 2);
  std::ranges::nth_element(seconds, middle);
  return *middle;
}

// kPoolBytes of random words that make normal bf16, float32, E2M1 codes and E8M0 scales, wherever a
// matrix begins.
inline AlignedBuffer<std::byte> make_weight_pool() {
  AlignedBuffer<std::byte> bytes(kPoolBytes);
  parallel_for(kPoolBytes / 4096, kMinParallelWork, [&](std::size_t page) {
    std::minstd_rand random(static_cast<unsigned>(page + 1));
    auto* words = reinterpret_cast<std::uint16_t*>(bytes.data() + page * 4096);
    for (std::size_t i = 0; i < 2048; ++i) {
      const auto r = static_cast<unsigned>(random());
      words[i] = static_cast<std::uint16_t>(0x3C75U + (r & 0x8000U) + r % 5);
    }
  });
  return bytes;
}

}  // namespace k3::bench

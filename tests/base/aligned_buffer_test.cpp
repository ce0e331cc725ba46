#include "base/aligned_buffer.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "support/expect_error.h"

namespace k3 {
namespace {

// Small blocks, and large ones, which come from huge pages in part.
TEST(AlignedBuffer, IsZeroOnACacheLineAtEverySize) {
  constexpr std::size_t kMega = std::size_t{1} << 20U;
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{63}, kMega, 4 * kMega - 1, 4 * kMega,
                                  5 * kMega + 3, 8 * kMega}) {
    const AlignedBuffer<std::byte> buffer(bytes);
    ASSERT_EQ(buffer.size(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % kCacheLine, 0U) << bytes;
    EXPECT_TRUE(std::ranges::all_of(buffer.span(), [](std::byte b) { return b == std::byte{0}; }))
        << bytes;
  }
}

// Memory that was used before must not show through.
TEST(AlignedBuffer, IsZeroWhereMemoryIsUsedAgain) {
  for (int round = 0; round < 3; ++round) {
    AlignedBuffer<std::uint32_t> buffer(1000);
    EXPECT_TRUE(std::ranges::all_of(buffer.span(), [](std::uint32_t v) { return v == 0; }));
    std::ranges::fill(buffer.span(), 0xFFFFFFFFU);
  }
}

TEST(AlignedBuffer, RefusesMoreThanThereIs) {
  constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();
  for (const std::size_t count : {kMost, kMost / 4, kMost / 8}) {
    EXPECT_TRUE(test::throws(ErrorKind::kMemory, {std::to_string(count)},
                             [&] { const AlignedBuffer<float> buffer(count); }));
  }
}

TEST(AlignedBuffer, OfNothingHasNothing) {
  const AlignedBuffer<float> buffer(0);
  EXPECT_TRUE(buffer.empty());
  EXPECT_EQ(buffer.data(), nullptr);
}

}  // namespace
}  // namespace k3

#include "base/checksum.h"

#include <span>
#include <string_view>

#include <gtest/gtest.h>

namespace k3 {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// As xxhsum -H2 prints it.
TEST(Checksum, IsXxh128) {
  EXPECT_EQ(checksum_text(checksum_of(bytes_of(""))), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(checksum_text(checksum_of(bytes_of("a"))), "a96faf705af16834e6c632b61e964e1f");
}

TEST(Checksum, IsTheSameInPartsAndStartsAnew) {
  Checksum parts;
  parts.add(bytes_of("a"));
  parts.add(bytes_of(""));
  parts.add(bytes_of("bc"));
  EXPECT_EQ(parts.take(), checksum_of(bytes_of("abc")));
  EXPECT_EQ(parts.take(), checksum_of(bytes_of("")));
}

}  // namespace
}  // namespace k3

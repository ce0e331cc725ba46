#include "io/huge_integer.h"

#include <string>

#include <gtest/gtest.h>

namespace k3::io {
namespace {

TEST(HugeInteger, TheFirstOneIsFoundWithItsKey) {
  const auto found = find_huge_integer(
      R"({"a":{"b":[1,18446744073709551615]},"c \"1":{"d":[-18446744073709551616,1]}})");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->key, R"(c \"1)");
  EXPECT_EQ(found->digits, "-18446744073709551616");
}

TEST(HugeInteger, DigitsWithinQuotesAreText) {
  EXPECT_FALSE(find_huge_integer(R"({"99999999999999999999999":"\"99999999999999999999999"})"));
}

TEST(HugeInteger, BrokenTextIsNoTrap) {
  for (const char* text : {"", "\"", "\"\\", "{\"", "]]}", "{\"a", "\\", "0", "}{\"a\":"}) {
    EXPECT_FALSE(find_huge_integer(text)) << text;
  }
  EXPECT_EQ(find_huge_integer("]99999999999999999999999")->digits, "99999999999999999999999");
}

}  // namespace
}  // namespace k3::io

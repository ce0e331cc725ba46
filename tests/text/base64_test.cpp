// Base64 as tiktoken.model holds it.

#include "text/base64.h"

#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace k3::text {
namespace {

TEST(Base64, DecodesEveryLengthOfAGroup) {
  std::string bytes = "> ";
  ASSERT_TRUE(append_base64("", bytes));
  EXPECT_EQ(bytes, "> ");
  ASSERT_TRUE(append_base64("Zg==", bytes));
  ASSERT_TRUE(append_base64("Zm8=", bytes));
  ASSERT_TRUE(append_base64("Zm9v", bytes));
  ASSERT_TRUE(append_base64("Zm9vYmFy", bytes));
  EXPECT_EQ(bytes, "> ffofoofoobar");
}

TEST(Base64, DecodesEveryDigit) {
  std::string bytes;
  ASSERT_TRUE(
      append_base64("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", bytes));
  constexpr std::string_view kFirst("\x00\x10\x83\x10\x51\x87", 6);
  EXPECT_EQ(bytes.substr(0, 6), kFirst);
  EXPECT_EQ(bytes.substr(42), "\xe3\x9e\xbb\xf3\xdf\xbf");
  EXPECT_EQ(bytes.size(), 48U);
}

TEST(Base64, RefusesWhatIsNotTheOneEncoding) {
  for (const char* digits : {"Zg", "Zg=", "Zg===", "Z===", "====", "=", "Zm8=Zg==", "Zm=v", "Z m8",
                             "Zm8\n", "Zm-_", "Zh==", "Zm9=", " Zg==", "\xc3\xa9Zg"}) {
    std::string bytes = "kept";
    EXPECT_FALSE(append_base64(digits, bytes)) << digits;
    EXPECT_EQ(bytes, "kept") << digits;
  }
}

}  // namespace
}  // namespace k3::text

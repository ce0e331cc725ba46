#include "cli/id_list.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "k3/errors.h"

namespace k3::cli {
namespace {

TEST(IdList, ReadsDigitsAndCommas) {
  EXPECT_EQ(parse_ids("7"), (std::vector<std::int32_t>{7}));
  EXPECT_EQ(parse_ids("0,12,163839"), (std::vector<std::int32_t>{0, 12, 163839}));
}

TEST(IdList, RefusesEverythingElseAndQuotesIt) {
  for (const char* text : {"", ",", "1,,2", "1,", ",1", "1,x", "-5", "+5", "1, 2", " 1", "1 ",
                           "1.0", "0x10", "1\n", "1;2", "\xC3\xA9"}) {
    try {
      (void)parse_ids(text);
      FAIL() << "accepted \"" << text << "\"";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
      EXPECT_NE(std::string(error.what()).find("--ids, entry"), std::string::npos);
      EXPECT_NE(std::string(error.what()).find("found \""), std::string::npos) << error.what();
    }
  }
}

TEST(IdList, RefusesNumbersThatNoIdCanBe) {
  for (const char* text : {"2147483648", "1000000000000", "99999999999999999999999999"}) {
    try {
      (void)parse_ids(text);
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
  }
}

TEST(IdList, RefusesIdsNotBelowTheVocabulary) {
  EXPECT_NO_THROW(check_ids({0, 255}, 256, "--ids"));
  try {
    check_ids({0, 256}, 256, "--ids");
    FAIL();
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("entry 2"), std::string::npos) << message;
    EXPECT_NE(message.find("0 to 255"), std::string::npos) << message;
    EXPECT_NE(message.find("found 256"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace k3::cli

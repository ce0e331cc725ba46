// tokenizer_config.json: names of special ids, ends of turns, and every fault.

#include "text/special_tokens.h"

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/expect_error.h"
#include "support/tokenizer_files.h"

namespace k3::text {
namespace {

using nlohmann::json;

// The config of the small vocabulary, to be damaged.
class SpecialTokensTest : public testing::Test {
 protected:
  [[nodiscard]] static SpecialTokens read(const std::string& text) {
    return read_special_tokens({text, "some/tokenizer_config.json"}, 768, "some/tiktoken.model");
  }

  static testing::AssertionResult refused(const std::string& text, std::vector<std::string> parts) {
    parts.emplace_back("some/tokenizer_config.json");
    return test::throws(ErrorKind::kUserFile, parts, [&] { static_cast<void>(read(text)); });
  }

  [[nodiscard]] testing::AssertionResult refused(const std::vector<std::string>& parts) const {
    return refused(config_.dump(), parts);
  }

  json config_ = json::parse(test::small_tokenizer_files().config);
};

TEST_F(SpecialTokensTest, NamesAreTheConfigsOrReserved) {
  const SpecialTokens tokens = read(config_.dump());
  ASSERT_EQ(tokens.names.size(), 256U);
  EXPECT_EQ(tokens.names[0], "[BOS]");
  EXPECT_EQ(tokens.names[2], "<|end_of_msg|>");
  EXPECT_EQ(tokens.names[6], "<|reserved_token_774|>");
  EXPECT_EQ(tokens.names[255], "[PAD]");
}

TEST_F(SpecialTokensTest, TurnsEndOnEosAndEndOfMessage) {
  EXPECT_EQ(read(config_.dump()).end_ids, (std::vector<std::int32_t>{769, 770}));
}

TEST_F(SpecialTokensTest, EndIdsFollowTheNames) {
  std::swap(config_["added_tokens_decoder"]["769"], config_["added_tokens_decoder"]["772"]);
  EXPECT_EQ(read(config_.dump()).end_ids, (std::vector<std::int32_t>{772, 770}));
  config_["eos_token"] = {{"content", "[BOS]"}};
  EXPECT_EQ(read(config_.dump()).end_ids, (std::vector<std::int32_t>{768, 770}));
  config_["eos_token"] = "<|end_of_msg|>";
  EXPECT_EQ(read(config_.dump()).end_ids, (std::vector<std::int32_t>{770}));
}

TEST_F(SpecialTokensTest, WhatIsNoJsonIsRefusedWithItsLine) {
  EXPECT_TRUE(refused("", {"line 1", "not valid JSON"}));
  EXPECT_TRUE(refused("{\n \"a\": 1,\n b\n}", {"line 3", "not valid JSON"}));
  const std::string whole = test::small_tokenizer_files().config;
  EXPECT_TRUE(refused(whole.substr(0, whole.size() / 2), {"line ", "not valid JSON"}));
}

// The JSON library reports it by another exception than other faults.
TEST_F(SpecialTokensTest, ANumberThatNoDoubleHoldsIsRefused) {
  EXPECT_TRUE(refused(R"({"model_max_length": 1e999})", {"cannot be read", "1e999"}));
}

TEST_F(SpecialTokensTest, AnotherTopLevelIsRefused) {
  EXPECT_TRUE(refused("[1]", {"line 1", "expected a JSON object, found an array"}));
}

TEST_F(SpecialTokensTest, ADuplicateKeyIsRefused) {
  EXPECT_TRUE(
      refused(R"({"added_tokens_decoder": {"768": "a", "768": "b"}})", {"768", "duplicate key"}));
}

TEST_F(SpecialTokensTest, MissingSpecialTokensAreRefused) {
  config_.erase("added_tokens_decoder");
  EXPECT_TRUE(refused({"added_tokens_decoder", "found nothing"}));
  config_["added_tokens_decoder"] = json::array();
  EXPECT_TRUE(refused({"added_tokens_decoder", "found an array"}));
}

TEST_F(SpecialTokensTest, AnIdThatDoesNotFollowTheRanksIsRefused) {
  for (const char* id :
       {"767", "1024", "x", "", "0768", "+768", "768 ", "99999999999999999999999"}) {
    json damaged = config_;
    damaged["added_tokens_decoder"][id] = {{"content", "name"}};
    EXPECT_TRUE(refused(damaged.dump(), {std::string("added_tokens_decoder.") + id, "768 to 1023",
                                         "some/tiktoken.model end on line 768", "truncated"}))
        << id;
  }
}

TEST_F(SpecialTokensTest, ANameThatIsNoneIsRefused) {
  for (const json& content : {json(), json(5), json(""), json::array(), json({{"content", ""}}),
                              json({{"content", 5}}), json::object()}) {
    json damaged = config_;
    damaged["added_tokens_decoder"]["780"] = content;
    EXPECT_TRUE(refused(damaged.dump(), {"added_tokens_decoder.780", "a string that is not empty"}))
        << content;
  }
}

TEST_F(SpecialTokensTest, TwoIdsOfOneNameAreRefused) {
  config_["added_tokens_decoder"]["780"] = {{"content", "<|open|>"}};
  EXPECT_TRUE(refused({"added_tokens_decoder", "\"<|open|>\" twice"}));
  config_["added_tokens_decoder"]["780"] = {{"content", "<|reserved_token_790|>"}};
  EXPECT_TRUE(refused({"\"<|reserved_token_790|>\" twice"}));
}

TEST_F(SpecialTokensTest, WithoutTheEndsOfATurnItIsRefused) {
  json damaged = config_;
  damaged.erase("eos_token");
  EXPECT_TRUE(refused(damaged.dump(), {"eos_token", "found nothing"}));
  damaged["eos_token"] = nullptr;
  EXPECT_TRUE(refused(damaged.dump(), {"eos_token", "a string that is not empty"}));
  damaged["eos_token"] = "[NONE]";
  EXPECT_TRUE(refused(damaged.dump(), {"eos_token", "found \"[NONE]\""}));
  config_["added_tokens_decoder"].erase("770");
  EXPECT_TRUE(refused({"added_tokens_decoder", "<|end_of_msg|>"}));
}

}  // namespace
}  // namespace k3::text

// Which values of a config are refused. Shapes, types and broken text: config_reader_test.cpp.

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "k3/errors.h"

#include "io/config_reader.h"
#include "support/config_edits.h"
#include "support/configs.h"

namespace k3::io {
namespace {

using nlohmann::json;
using test::config_refused;
using test::config_text_refused;
using test::flat_with;
using test::member;
using test::nested_with;
using test::parse;
using test::without;

TEST(ConfigRules, EverySizeMustBeAPositiveWholeNumber) {
  for (const std::string& path : test::size_paths()) {
    for (const json& wrong : {json(0), json(-1), json(2.5), json("3"), json(4294967296U),
                              json(18446744073709551615U)}) {
      if (path == "first_k_dense_replace" && wrong == 0) {
        continue;
      }
      EXPECT_TRUE(
          config_refused(flat_with(path, wrong), {path, "whole number", "found " + wrong.dump()}))
          << path;
    }
  }
}

TEST(ConfigRules, IntegersBeyond64BitsAreNoSizes) {
  std::string text = test::flat_config().dump();
  const std::string field = "\"vocab_size\":256";
  text.replace(text.find(field), field.size(), "\"vocab_size\":18446744073709551617");
  EXPECT_TRUE(config_text_refused(text, {"vocab_size", "whole number"}));
}

TEST(ConfigRules, DenseLayersMayBeNoneOrAll) {
  EXPECT_EQ(parse(flat_with("first_k_dense_replace", 0)).first_k_dense_replace, 0U);
  EXPECT_EQ(parse(flat_with("first_k_dense_replace", 5)).first_k_dense_replace, 5U);
  EXPECT_TRUE(config_refused(flat_with("first_k_dense_replace", 6),
                             {"first_k_dense_replace", "at most 5", "found 6"}));
}

TEST(ConfigRules, TopKAboveTheExpertCountIsRefused) {
  EXPECT_EQ(parse(flat_with("num_experts_per_token", 9)).num_experts_per_token, 9U);
  EXPECT_TRUE(config_refused(flat_with("num_experts_per_token", 10),
                             {"num_experts_per_token", "at most 9", "found 10"}));
}

TEST(ConfigRules, LayerIndicesAreOneBasedUniqueAndInRange) {
  EXPECT_EQ(parse(flat_with("full_attn_layers", {1, 5})).is_mla,
            (std::vector<bool>{true, false, false, false, true}));
  for (const json& wrong : {json(0), json(6), json(-1), json(2.0), json("2"), json(true)}) {
    EXPECT_TRUE(config_refused(flat_with("full_attn_layers", json::array({1, wrong})),
                               {"full_attn_layers", "1 to 5", "found " + wrong.dump()}));
  }
  EXPECT_TRUE(
      config_refused(flat_with("full_attn_layers", {2, 4, 2}), {"full_attn_layers", "2 twice"}));
}

TEST(ConfigRules, ALayerOfEachKind) {
  EXPECT_TRUE(config_refused(flat_with("full_attn_layers", {1, 2, 3, 4, 5}),
                             {"full_attn_layers", "KDA layer"}));
  EXPECT_EQ(parse(flat_with("full_attn_layers", json::array())).is_mla, std::vector<bool>(5));
}

TEST(ConfigRules, KdaLayersMustBeTheExactComplement) {
  const std::string path = "text_config.linear_attn_config.kda_layers";
  EXPECT_NO_THROW(parse(nested_with(path, {3, 1, 2})));
  EXPECT_TRUE(config_refused(nested_with(path, {1, 2}), {path, "layer 3 in neither"}));
  EXPECT_TRUE(config_refused(nested_with(path, {1, 2, 3, 4}), {path, "layer 4 in both"}));
  EXPECT_TRUE(config_refused(nested_with(path, {1, 2, 3, 3}), {path, "3 twice"}));
  EXPECT_TRUE(config_refused(nested_with(path, {1, 2, 3, 6}), {path, "1 to 5", "found 6"}));
  EXPECT_TRUE(config_refused(nested_with(path, nullptr), {path, "array", "found null"}));
  EXPECT_TRUE(
      config_refused(flat_with("kda_layers", {1, 2}), {"kda_layers", "layer 3 in neither"}));
}

struct OnlyValue {
  std::string path;
  json right;
  std::vector<json> wrong;
};

TEST(ConfigRules, ValuesOfAnotherModelAreRefused) {
  const std::string text = "text_config.";
  const std::vector<OnlyValue> rules = {
      {text + "hidden_act", "situ", {"silu", "SITU", nullptr, 1}},
      {text + "moe_router_activation_func", "sigmoid", {"softmax", nullptr}},
      {text + "num_expert_group", 1, {2, 0, "1", 1.0, true, nullptr}},
      {text + "topk_group", 1, {2, 1.0}},
      {text + "moe_layer_freq", 1, {2, "1"}},
      {text + "linear_attn_config.use_full_rank_gate", true, {false, 1, "true", nullptr}},
      {text + "use_full_rank_gate", true, {false}},
      {text + "mla_use_nope", true, {false, 1}},
      {text + "tie_word_embeddings", false, {true, 0, "false", nullptr}},
      {"tie_word_embeddings", false, {true, 0}},
      {text + "num_key_value_heads", 6, {1, 4, 6.0, "6", nullptr}},
  };
  for (const OnlyValue& rule : rules) {
    EXPECT_NO_THROW(parse(nested_with(rule.path, rule.right))) << rule.path;
    for (const json& wrong : rule.wrong) {
      EXPECT_TRUE(
          config_refused(nested_with(rule.path, wrong),
                         {rule.path, "expected " + rule.right.dump(), "found " + wrong.dump()}));
    }
  }
  EXPECT_TRUE(
      config_refused(flat_with("use_full_rank_gate", false), {"use_full_rank_gate", "true"}));
}

TEST(ConfigRules, TheGroupSizeIs32WhereverItStands) {
  const std::string block = "text_config.quantization_config";
  json release = test::nested_config();
  release["text_config"]["quantization_config"] = {
      {"format", "mxfp4-pack-quantized"},
      {"config_groups",
       {{"group_0", {{"format", "mxfp4-pack-quantized"}, {"weights", {{"group_size", 32}}}}}}}};
  EXPECT_NO_THROW(parse(release));
  for (const json& wrong : {json(16), json("32"), json(32.0), json(nullptr)}) {
    EXPECT_TRUE(config_refused(nested_with(block + ".group_size", wrong),
                               {block + ".group_size", "expected 32", "found " + wrong.dump()}));
    json other = release;
    const std::string path = block + ".config_groups.group_0.weights.group_size";
    member(other, path) = wrong;
    EXPECT_TRUE(config_refused(other, {path, "expected 32", "found " + wrong.dump()}));
  }
  EXPECT_TRUE(config_refused(flat_with("quantization_config", {{"group_size", 64}}),
                             {"quantization_config.group_size", "expected 32", "found 64"}));
  EXPECT_TRUE(config_refused(nested_with("quantization_config", {{"group_size", 64}}),
                             {"quantization_config.group_size", "expected 32", "found 64"}));
}

TEST(ConfigRules, OnlyAFlatConfigMayLackTheQuantizationBlock) {
  ASSERT_FALSE(test::flat_config().contains("quantization_config"));
  EXPECT_NO_THROW(parse(test::flat_config()));
  EXPECT_TRUE(config_refused(without(test::nested_config(), "text_config.quantization_config"),
                             {"missing", "text_config.quantization_config.group_size"}));
  EXPECT_TRUE(config_refused(flat_with("quantization_config", json::object()),
                             {"missing", "quantization_config.group_size"}));
  EXPECT_TRUE(config_refused(flat_with("quantization_config", nullptr),
                             {"quantization_config", "an object", "found null"}));
}

TEST(ConfigRules, OtherQuantizationFormatsAreRefused) {
  const std::string block = "text_config.quantization_config";
  EXPECT_TRUE(config_refused(nested_with(block + ".format", "nvfp4-pack-quantized"),
                             {block + ".format", "mxfp4-pack-quantized", "nvfp4-pack-quantized"}));
  const json group = {{"format", "int-quantized"}, {"weights", {{"group_size", 32}}}};
  EXPECT_TRUE(config_refused(nested_with(block + ".config_groups", {{"group_0", group}}),
                             {block + ".config_groups.group_0.format", "int-quantized"}));
}

TEST(ConfigRules, EpsIsFiniteAndNotNegative) {
  EXPECT_EQ(parse(flat_with("rms_norm_eps", 0)).rms_norm_eps, 0.0);
  EXPECT_TRUE(
      config_refused(flat_with("rms_norm_eps", -1e-5), {"rms_norm_eps", "not below 0", "-1e-05"}));
  std::string text = test::flat_config().dump();
  const std::string field = "\"rms_norm_eps\":1e-05";
  const std::size_t at = text.find(field);
  ASSERT_NE(at, std::string::npos);
  for (const char* wrong : {"1e400", "-1e400", "NaN", "Infinity", "-Infinity", "nan"}) {
    std::string other = text;
    other.replace(at, field.size(), std::string("\"rms_norm_eps\":") + wrong);
    EXPECT_TRUE(config_text_refused(other, {"not valid JSON"})) << wrong;
  }
}

TEST(ConfigRules, SituBetasDivideSoTheyArePositive) {
  for (const char* key : {"situ_beta", "situ_linear_beta"}) {
    EXPECT_TRUE(config_refused(flat_with(key, 0.0), {key, "positive", "0.0"}));
    EXPECT_TRUE(config_refused(flat_with(key, -4), {key, "positive", "-4"}));
  }
}

TEST(ConfigRules, WidthsOfPackedExpertsAreMultiplesOf32) {
  for (const char* key : {"routed_expert_hidden_size", "moe_intermediate_size"}) {
    EXPECT_TRUE(config_refused(flat_with(key, 48), {key, "multiple of 32", "found 48"}));
    EXPECT_TRUE(config_refused(flat_with(key, 31), {key, "multiple of 32", "found 31"}));
  }
}

TEST(ConfigRules, ProductsThatOverflowAreRefused) {
  const std::size_t huge = 2147483616;  // a multiple of 32 below 2^31
  for (const auto& [first, second] :
       {std::pair("vocab_size", "hidden_size"), std::pair("kda_num_heads", "kda_head_dim"),
        std::pair("num_attention_heads", "v_head_dim"),
        std::pair("num_shared_experts", "moe_intermediate_size"),
        std::pair("intermediate_size", "hidden_size"),
        std::pair("moe_intermediate_size", "routed_expert_hidden_size")}) {
    json document = flat_with(first, huge);
    document[second] = huge;
    EXPECT_TRUE(config_refused(document, {"overflow"})) << first << " x " << second;
  }
  EXPECT_TRUE(config_refused(flat_with("num_experts", 1000000),
                             {"num_hidden_layers x num_experts", "5 x 1000000"}));
  EXPECT_TRUE(
      config_refused(flat_with("num_hidden_layers", 1000000), {"num_hidden_layers", "1000000"}));
}

}  // namespace
}  // namespace k3::io

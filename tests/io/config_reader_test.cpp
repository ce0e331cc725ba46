#include "io/config_reader.h"

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "k3/errors.h"

#include "support/configs.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/safetensors_builder.h"

namespace k3::io {
namespace {

using nlohmann::json;
using test::throws;

constexpr const char* kWhere = "some/config.json";

// A member by its dotted path.
json& member(json& document, std::string path) {
  for (char& character : path) {
    character = character == '.' ? '/' : character;
  }
  return document[json::json_pointer("/" + path)];
}

json nested_with(const std::string& path, const json& value) {
  json document = test::nested_config();
  member(document, path) = value;
  return document;
}

json flat_with(const std::string& path, const json& value) {
  json document = test::flat_config();
  member(document, path) = value;
  return document;
}

json without(json document, const std::string& path) {
  const std::size_t dot = path.rfind('.');
  if (dot == std::string::npos) {
    document.erase(path);
  } else {
    member(document, path.substr(0, dot)).erase(path.substr(dot + 1));
  }
  return document;
}

ModelConfig parse(const json& document) {
  return parse_config(document.dump(), kWhere);
}

testing::AssertionResult refused(const json& document, std::vector<std::string> parts) {
  parts.emplace_back(kWhere);
  return throws(ErrorKind::kConfig, parts, [&] { parse(document); });
}

testing::AssertionResult refused_text(const std::string& text, std::vector<std::string> parts) {
  parts.emplace_back(kWhere);
  return throws(ErrorKind::kConfig, parts, [&] { static_cast<void>(parse_config(text, kWhere)); });
}

void expect_small_model(const ModelConfig& config) {
  EXPECT_EQ(config.hidden_size, 128U);
  EXPECT_EQ(config.num_hidden_layers, 5U);
  EXPECT_EQ(config.vocab_size, 256U);
  EXPECT_EQ(config.rms_norm_eps, 1e-5);
  EXPECT_EQ(config.kda_num_heads, 4U);
  EXPECT_EQ(config.kda_head_dim, 16U);
  EXPECT_EQ(config.short_conv_kernel_size, 3U);
  EXPECT_EQ(config.gate_lower_bound, -5.0);
  EXPECT_EQ(config.is_mla, (std::vector<bool>{false, false, false, true, true}));
  EXPECT_EQ(config.num_attention_heads, 6U);
  EXPECT_EQ(config.q_lora_rank, 64U);
  EXPECT_EQ(config.kv_lora_rank, 40U);
  EXPECT_EQ(config.qk_nope_head_dim, 24U);
  EXPECT_EQ(config.qk_rope_head_dim, 8U);
  EXPECT_EQ(config.v_head_dim, 20U);
  EXPECT_TRUE(config.mla_use_output_gate);
  EXPECT_EQ(config.num_experts, 9U);
  EXPECT_EQ(config.num_experts_per_token, 2U);
  EXPECT_EQ(config.num_shared_experts, 3U);
  EXPECT_EQ(config.routed_expert_hidden_size, 64U);
  EXPECT_EQ(config.moe_intermediate_size, 96U);
  EXPECT_EQ(config.routed_scaling_factor, 1.5);
  EXPECT_FALSE(config.moe_renormalize);
  EXPECT_TRUE(config.latent_moe_use_norm);
  EXPECT_EQ(config.first_k_dense_replace, 1U);
  EXPECT_EQ(config.intermediate_size, 112U);
  EXPECT_EQ(config.attn_res_block_size, 2U);
  EXPECT_EQ(config.situ_beta, 4.0);
  EXPECT_EQ(config.situ_linear_beta, 25.0);
}

TEST(ConfigReader, ReadsTheNestedShape) {
  expect_small_model(parse(test::nested_config()));
}

TEST(ConfigReader, ReadsTheFlatShape) {
  expect_small_model(parse(test::flat_config()));
}

TEST(ConfigReader, KdaHeadsComeFromLinearAttnConfigNotFromTextConfig) {
  json document = test::nested_config();
  document["text_config"]["num_heads"] = 77;
  document["text_config"]["head_dim"] = 78;
  document["text_config"]["kda_num_heads"] = 79;
  document["num_heads"] = 80;
  expect_small_model(parse(document));
  // Nor do these keys stand in for absent ones.
  EXPECT_TRUE(refused(without(document, "text_config.linear_attn_config.num_heads"),
                      {"text_config.linear_attn_config.num_heads"}));
}

TEST(ConfigReader, TopLevelKeysDoNotOverrideTheNestedModel) {
  json document = test::nested_config();
  document["hidden_size"] = 4096;
  document["vocab_size"] = "not ours";
  expect_small_model(parse(document));
}

TEST(ConfigReader, EveryRequiredNameIsNamedWhenItIsMissing) {
  for (const auto& [shape, document] :
       {std::pair("nested", test::nested_config()), std::pair("flat", test::flat_config())}) {
    for (const std::string& path : test::required_paths(std::string(shape) == "nested")) {
      EXPECT_TRUE(refused(without(document, path), {"missing", path})) << shape << " " << path;
    }
  }
}

TEST(ConfigReader, AllMissingNamesStandInOneMessage) {
  std::vector<std::string> nested = test::required_paths(true);
  EXPECT_TRUE(refused_text(R"({"text_config": {}})", nested));
  EXPECT_TRUE(refused_text("{}", test::required_paths(false)));
  json two = without(without(test::flat_config(), "q_lora_rank"), "situ_beta");
  EXPECT_TRUE(refused(two, {"expected q_lora_rank, situ_beta", "none of these 2"}));
}

TEST(ConfigReader, WrongTypesAreRefused) {
  for (const json& wrong : {json("128"), json(true), json(nullptr), json::array({128}),
                            json::object(), json(128.5), json(128.0), json(-128), json(0)}) {
    EXPECT_TRUE(refused(nested_with("text_config.hidden_size", wrong),
                        {"text_config.hidden_size", "expected a whole number", "found"}))
        << wrong;
    EXPECT_TRUE(refused(nested_with("text_config.linear_attn_config.num_heads", wrong),
                        {"text_config.linear_attn_config.num_heads", "expected", "found"}));
  }
  for (const json& wrong : {json("1e-5"), json(false), json(nullptr), json::array()}) {
    EXPECT_TRUE(refused(flat_with("rms_norm_eps", wrong), {"rms_norm_eps", "number", "found"}));
    EXPECT_TRUE(
        refused(flat_with("gate_lower_bound", wrong), {"gate_lower_bound", "number", "found"}));
  }
  EXPECT_TRUE(refused(flat_with("full_attn_layers", 4), {"full_attn_layers", "array", "found 4"}));
  EXPECT_TRUE(refused(nested_with("text_config", 4), {"text_config", "an object", "found 4"}));
  EXPECT_TRUE(refused(nested_with("text_config.linear_attn_config", nullptr),
                      {"text_config.linear_attn_config", "an object", "found null"}));
}

TEST(ConfigReader, BooleansOfAnotherTypeAreRefusedNotDefaulted) {
  for (const char* key : {"mla_use_output_gate", "moe_renormalize", "latent_moe_use_norm"}) {
    for (const json& wrong : {json(1), json(0), json("true"), json(nullptr)}) {
      EXPECT_TRUE(refused(flat_with(key, wrong), {key, "true or false", "found " + wrong.dump()}));
    }
  }
}

TEST(ConfigReader, EverySizeMustBeAPositiveWholeNumber) {
  for (const std::string& path : test::size_paths()) {
    for (const json& wrong : {json(0), json(-1), json(2.5), json("3"), json(4294967296U),
                              json(18446744073709551615U)}) {
      if (path == "first_k_dense_replace" && wrong == 0) {
        continue;
      }
      EXPECT_TRUE(refused(flat_with(path, wrong), {path, "whole number", "found " + wrong.dump()}))
          << path;
    }
  }
}

TEST(ConfigReader, IntegersBeyond64BitsAreNoSizes) {
  std::string text = test::flat_config().dump();
  const std::string field = "\"vocab_size\":256";
  text.replace(text.find(field), field.size(), "\"vocab_size\":18446744073709551617");
  EXPECT_TRUE(refused_text(text, {"vocab_size", "whole number"}));
}

TEST(ConfigReader, DenseLayersMayBeNoneOrAll) {
  EXPECT_EQ(parse(flat_with("first_k_dense_replace", 0)).first_k_dense_replace, 0U);
  EXPECT_EQ(parse(flat_with("first_k_dense_replace", 5)).first_k_dense_replace, 5U);
  EXPECT_TRUE(refused(flat_with("first_k_dense_replace", 6),
                      {"first_k_dense_replace", "at most 5", "found 6"}));
}

TEST(ConfigReader, TopKAboveTheExpertCountIsRefused) {
  EXPECT_EQ(parse(flat_with("num_experts_per_token", 9)).num_experts_per_token, 9U);
  EXPECT_TRUE(refused(flat_with("num_experts_per_token", 10),
                      {"num_experts_per_token", "at most 9", "found 10"}));
}

TEST(ConfigReader, LayerIndicesAreOneBasedUniqueAndInRange) {
  EXPECT_EQ(parse(flat_with("full_attn_layers", {1, 5})).is_mla,
            (std::vector<bool>{true, false, false, false, true}));
  for (const json& wrong : {json(0), json(6), json(-1), json(2.0), json("2"), json(true)}) {
    EXPECT_TRUE(refused(flat_with("full_attn_layers", json::array({1, wrong})),
                        {"full_attn_layers", "1 to 5", "found " + wrong.dump()}));
  }
  EXPECT_TRUE(refused(flat_with("full_attn_layers", {2, 4, 2}), {"full_attn_layers", "2 twice"}));
}

TEST(ConfigReader, ALayerOfEachKind) {
  EXPECT_TRUE(
      refused(flat_with("full_attn_layers", {1, 2, 3, 4, 5}), {"full_attn_layers", "KDA layer"}));
  EXPECT_EQ(parse(flat_with("full_attn_layers", json::array())).is_mla, std::vector<bool>(5));
}

TEST(ConfigReader, KdaLayersMustBeTheExactComplement) {
  const std::string path = "text_config.linear_attn_config.kda_layers";
  EXPECT_NO_THROW(parse(nested_with(path, {3, 1, 2})));
  EXPECT_TRUE(refused(nested_with(path, {1, 2}), {path, "layer 3 in neither"}));
  EXPECT_TRUE(refused(nested_with(path, {1, 2, 3, 4}), {path, "layer 4 in both"}));
  EXPECT_TRUE(refused(nested_with(path, {1, 2, 3, 3}), {path, "3 twice"}));
  EXPECT_TRUE(refused(nested_with(path, {1, 2, 3, 6}), {path, "1 to 5", "found 6"}));
  EXPECT_TRUE(refused(nested_with(path, nullptr), {path, "array", "found null"}));
  EXPECT_TRUE(refused(flat_with("kda_layers", {1, 2}), {"kda_layers", "layer 3 in neither"}));
}

struct OnlyValue {
  std::string path;
  json right;
  std::vector<json> wrong;
};

TEST(ConfigReader, ValuesOfAnotherModelAreRefused) {
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
      EXPECT_TRUE(refused(nested_with(rule.path, wrong),
                          {rule.path, "expected " + rule.right.dump(), "found " + wrong.dump()}));
    }
  }
  EXPECT_TRUE(refused(flat_with("use_full_rank_gate", false), {"use_full_rank_gate", "true"}));
}

TEST(ConfigReader, TheGroupSizeIs32WhereverItStands) {
  const std::string block = "text_config.quantization_config";
  json release = test::nested_config();
  release["text_config"]["quantization_config"] = {
      {"format", "mxfp4-pack-quantized"},
      {"config_groups",
       {{"group_0", {{"format", "mxfp4-pack-quantized"}, {"weights", {{"group_size", 32}}}}}}}};
  EXPECT_NO_THROW(parse(release));
  for (const json& wrong : {json(16), json("32"), json(32.0), json(nullptr)}) {
    EXPECT_TRUE(refused(nested_with(block + ".group_size", wrong),
                        {block + ".group_size", "expected 32", "found " + wrong.dump()}));
    json other = release;
    const std::string path = block + ".config_groups.group_0.weights.group_size";
    member(other, path) = wrong;
    EXPECT_TRUE(refused(other, {path, "expected 32", "found " + wrong.dump()}));
  }
  EXPECT_TRUE(refused(flat_with("quantization_config", {{"group_size", 64}}),
                      {"quantization_config.group_size", "expected 32", "found 64"}));
  EXPECT_TRUE(refused(nested_with("quantization_config", {{"group_size", 64}}),
                      {"quantization_config.group_size", "expected 32", "found 64"}));
}

TEST(ConfigReader, OnlyAFlatConfigMayLackTheQuantizationBlock) {
  ASSERT_FALSE(test::flat_config().contains("quantization_config"));
  EXPECT_NO_THROW(parse(test::flat_config()));
  EXPECT_TRUE(refused(without(test::nested_config(), "text_config.quantization_config"),
                      {"missing", "text_config.quantization_config.group_size"}));
  EXPECT_TRUE(refused(flat_with("quantization_config", json::object()),
                      {"missing", "quantization_config.group_size"}));
  EXPECT_TRUE(refused(flat_with("quantization_config", nullptr),
                      {"quantization_config", "an object", "found null"}));
}

TEST(ConfigReader, OtherQuantizationFormatsAreRefused) {
  const std::string block = "text_config.quantization_config";
  EXPECT_TRUE(refused(nested_with(block + ".format", "nvfp4-pack-quantized"),
                      {block + ".format", "mxfp4-pack-quantized", "nvfp4-pack-quantized"}));
  const json group = {{"format", "int-quantized"}, {"weights", {{"group_size", 32}}}};
  EXPECT_TRUE(refused(nested_with(block + ".config_groups", {{"group_0", group}}),
                      {block + ".config_groups.group_0.format", "int-quantized"}));
}

TEST(ConfigReader, EpsIsFiniteAndNotNegative) {
  EXPECT_EQ(parse(flat_with("rms_norm_eps", 0)).rms_norm_eps, 0.0);
  EXPECT_TRUE(refused(flat_with("rms_norm_eps", -1e-5), {"rms_norm_eps", "not below 0", "-1e-05"}));
  std::string text = test::flat_config().dump();
  const std::string field = "\"rms_norm_eps\":1e-05";
  const std::size_t at = text.find(field);
  ASSERT_NE(at, std::string::npos);
  for (const char* wrong : {"1e400", "-1e400", "NaN", "Infinity", "-Infinity", "nan"}) {
    std::string other = text;
    other.replace(at, field.size(), std::string("\"rms_norm_eps\":") + wrong);
    EXPECT_TRUE(refused_text(other, {"not valid JSON"})) << wrong;
  }
}

TEST(ConfigReader, SituBetasDivideSoTheyArePositive) {
  for (const char* key : {"situ_beta", "situ_linear_beta"}) {
    EXPECT_TRUE(refused(flat_with(key, 0.0), {key, "positive", "0.0"}));
    EXPECT_TRUE(refused(flat_with(key, -4), {key, "positive", "-4"}));
  }
}

TEST(ConfigReader, WidthsOfPackedExpertsAreMultiplesOf32) {
  for (const char* key : {"routed_expert_hidden_size", "moe_intermediate_size"}) {
    EXPECT_TRUE(refused(flat_with(key, 48), {key, "multiple of 32", "found 48"}));
    EXPECT_TRUE(refused(flat_with(key, 31), {key, "multiple of 32", "found 31"}));
  }
}

TEST(ConfigReader, ProductsThatOverflowAreRefused) {
  const std::size_t huge = 2147483616;  // a multiple of 32 below 2^31
  for (const auto& [first, second] :
       {std::pair("vocab_size", "hidden_size"), std::pair("kda_num_heads", "kda_head_dim"),
        std::pair("num_attention_heads", "v_head_dim"),
        std::pair("num_shared_experts", "moe_intermediate_size"),
        std::pair("intermediate_size", "hidden_size"),
        std::pair("moe_intermediate_size", "routed_expert_hidden_size")}) {
    json document = flat_with(first, huge);
    document[second] = huge;
    EXPECT_TRUE(refused(document, {"overflow"})) << first << " x " << second;
  }
  EXPECT_TRUE(refused(flat_with("num_experts", 1000000),
                      {"num_hidden_layers x num_experts", "5 x 1000000"}));
  EXPECT_TRUE(refused(flat_with("num_hidden_layers", 1000000), {"num_hidden_layers", "1000000"}));
}

TEST(ConfigReader, DuplicateKeysAreRefused) {
  const auto doubled = [](const std::string& field, const std::string& more) {
    std::string text = test::nested_config().dump();
    const std::size_t at = text.find(field);
    return text.replace(at, field.size(), field + "," + more);
  };
  EXPECT_TRUE(refused_text(doubled("\"hidden_size\":128", "\"hidden_size\":128"),
                           {"hidden_size", "once", "twice"}));
  EXPECT_TRUE(
      refused_text(doubled("\"head_dim\":16", "\"head_dim\":32"), {"head_dim", "once", "twice"}));
  EXPECT_TRUE(refused_text(doubled("\"group_size\":32", "\"group_size\":32"),
                           {"group_size", "once", "twice"}));
  const std::string text = test::nested_config().dump();
  EXPECT_TRUE(refused_text(text.substr(0, text.size() - 1) + R"(,"text_config":{}})",
                           {"text_config", "once", "twice"}));
  // An escaped spelling is the same key; equal keys of different objects are fine.
  EXPECT_TRUE(refused_text(doubled("\"head_dim\":16", "\"head\\u005fdim\":16"), {"head_dim"}));
}

TEST(ConfigReader, TextThatIsNoConfigIsRefused) {
  EXPECT_TRUE(refused_text("", {"empty file"}));
  EXPECT_TRUE(refused_text("   ", {"not valid JSON"}));
  EXPECT_TRUE(refused_text("[]", {"top level", "an array"}));
  EXPECT_TRUE(refused_text("7", {"top level", "found 7"}));
  EXPECT_TRUE(refused_text(R"({"hidden_size": )", {"not valid JSON"}));
  EXPECT_TRUE(refused_text("{} {}", {"not valid JSON"}));
  EXPECT_TRUE(refused_text(R"({"hidden_size": "a)"
                           "\xff"
                           "\"}",
                           {"not valid JSON"}));
  EXPECT_TRUE(refused_text(std::string("{\0}", 3), {"not valid JSON"}));
  EXPECT_TRUE(refused_text("version https://git-lfs.github.com/spec/v1\n", {"not valid JSON"}));
}

TEST(ConfigReader, DeepNestingIsRefused) {
  EXPECT_TRUE(refused_text(std::string(1'000'000, '['), {"nesting", "at most 64"}));
  std::string objects;
  for (int level = 0; level < 100'000; ++level) {
    objects += R"({"a":)";
  }
  EXPECT_TRUE(refused_text(objects, {"nesting", "at most 64"}));
}

TEST(ConfigReader, MessagesHoldNoControlCharacters) {
  json document = test::flat_config();
  document["hidden_act"] = "\x1b[31mred\n";
  try {
    parse(document);
    FAIL() << "accepted";
  } catch (const Error& error) {
    for (const char* part = error.what(); *part != '\0'; ++part) {
      EXPECT_GE(static_cast<unsigned char>(*part), 0x20U);
    }
  }
}

TEST(ConfigReader, FilesThatCannotBeReadAreRefused) {
  const test::TempDir dir;
  const auto read = [](const std::filesystem::path& path) { static_cast<void>(read_config(path)); };
  EXPECT_TRUE(throws(ErrorKind::kConfig, {"absent.json", "No such file"},
                     [&] { read(dir.path() / "absent.json"); }));
  EXPECT_TRUE(throws(ErrorKind::kConfig, {dir.path().string(), "Is a directory"},
                     [&] { read(dir.path()); }));
  test::write_file(dir.path() / "empty.json", "");
  EXPECT_TRUE(throws(ErrorKind::kConfig, {"empty.json", "empty file"},
                     [&] { read(dir.path() / "empty.json"); }));
  test::write_file(dir.path() / "large.json", std::string((4U << 20U) + 1, ' '));
  EXPECT_TRUE(throws(ErrorKind::kConfig, {"large.json", "too large", "4194304"},
                     [&] { read(dir.path() / "large.json"); }));
  test::write_file(dir.path() / "good.json", test::nested_config().dump(2));
  expect_small_model(read_config(dir.path() / "good.json"));
}

// Configs of others.

TEST(SharedConfigs, TheThreeBadOnesAreRefusedForTheirReason) {
  const auto dir = test::shared("peer/cfg");
  if (dir.empty()) {
    GTEST_SKIP() << test::missing_shared("peer/cfg");
  }
  const auto read = [&](const char* name) { static_cast<void>(read_config(dir / name)); };
  EXPECT_TRUE(throws(ErrorKind::kConfig,
                     {"bad_layer_index.json", "full_attn_layers", "1 to 13", "found 999"},
                     [&] { read("bad_layer_index.json"); }));
  EXPECT_TRUE(throws(ErrorKind::kConfig,
                     {"bad_topk.json", "num_experts_per_token", "at most 8", "found 128"},
                     [&] { read("bad_topk.json"); }));
  EXPECT_TRUE(throws(ErrorKind::kConfig,
                     {"no_layermap.json", "missing", "full_attn_layers", "none of these 1"},
                     [&] { read("no_layermap.json"); }));
}

TEST(SharedConfigs, TheReleasedConfigIsRead) {
  const auto path = test::shared("kimi-k3-tokenizer/config.json");
  if (path.empty()) {
    GTEST_SKIP() << test::missing_shared("kimi-k3-tokenizer/config.json");
  }
  EXPECT_EQ(read_config(path), test::released_values());
}

TEST(SharedConfigs, TheAcceptanceConfigIsRead) {
  const auto path = test::shared("acceptance/released-like/model/config.json");
  if (path.empty()) {
    GTEST_SKIP() << test::missing_shared("acceptance/released-like");
  }
  const ModelConfig config = read_config(path);
  EXPECT_EQ(config.num_hidden_layers, 13U);
  EXPECT_EQ(config.hidden_size, 128U);
  EXPECT_EQ(config.moe_intermediate_size, 64U);
  EXPECT_EQ(config.kda_head_dim, 16U);
  EXPECT_EQ(std::count(config.is_mla.begin(), config.is_mla.end(), true), 4);
  EXPECT_TRUE(config.is_mla[3] && config.is_mla[12] && !config.is_mla[0]);
}

}  // namespace
}  // namespace k3::io

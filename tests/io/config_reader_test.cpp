#include "io/config_reader.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "k3/errors.h"

#include "support/config_edits.h"
#include "support/configs.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/safetensors_builder.h"

namespace k3::io {
namespace {

using nlohmann::json;
using test::config_refused;
using test::config_text_refused;
using test::flat_with;
using test::nested_with;
using test::parse;
using test::throws;
using test::without;

// What the small configs of support/configs.h say.
ModelConfig small_model() {
  ModelConfig config;
  config.hidden_size = 128;
  config.num_hidden_layers = 5;
  config.vocab_size = 256;
  config.rms_norm_eps = 1e-5;
  config.kda_num_heads = 4;
  config.kda_head_dim = 16;
  config.short_conv_kernel_size = 3;
  config.gate_lower_bound = -5.0;
  config.is_mla = {false, false, false, true, true};
  config.num_attention_heads = 6;
  config.q_lora_rank = 64;
  config.kv_lora_rank = 40;
  config.qk_nope_head_dim = 24;
  config.qk_rope_head_dim = 8;
  config.v_head_dim = 20;
  config.mla_use_output_gate = true;
  config.num_experts = 9;
  config.num_experts_per_token = 2;
  config.num_shared_experts = 3;
  config.routed_expert_hidden_size = 64;
  config.moe_intermediate_size = 96;
  config.routed_scaling_factor = 1.5;
  config.moe_renormalize = false;
  config.latent_moe_use_norm = true;
  config.first_k_dense_replace = 1;
  config.intermediate_size = 112;
  config.attn_res_block_size = 2;
  config.situ_beta = 4.0;
  config.situ_linear_beta = 25.0;
  return config;
}

TEST(ConfigReader, ReadsTheNestedShape) {
  EXPECT_EQ(parse(test::nested_config()), small_model());
}

TEST(ConfigReader, ReadsTheFlatShape) {
  EXPECT_EQ(parse(test::flat_config()), small_model());
}

TEST(ConfigReader, KdaHeadsComeFromLinearAttnConfigNotFromTextConfig) {
  json document = test::nested_config();
  document["text_config"]["num_heads"] = 77;
  document["text_config"]["head_dim"] = 78;
  document["text_config"]["kda_num_heads"] = 79;
  document["num_heads"] = 80;
  EXPECT_EQ(parse(document), small_model());
  // Nor do these keys stand in for absent ones.
  EXPECT_TRUE(config_refused(without(document, "text_config.linear_attn_config.num_heads"),
                             {"text_config.linear_attn_config.num_heads"}));
}

TEST(ConfigReader, TopLevelKeysDoNotOverrideTheNestedModel) {
  json document = test::nested_config();
  document["hidden_size"] = 4096;
  document["vocab_size"] = "not ours";
  EXPECT_EQ(parse(document), small_model());
}

TEST(ConfigReader, EveryRequiredNameIsNamedWhenItIsMissing) {
  for (const auto& [shape, document] :
       {std::pair("nested", test::nested_config()), std::pair("flat", test::flat_config())}) {
    for (const std::string& path : test::required_paths(std::string(shape) == "nested")) {
      EXPECT_TRUE(config_refused(without(document, path), {"missing", path}))
          << shape << " " << path;
    }
  }
}

TEST(ConfigReader, AllMissingNamesStandInOneMessage) {
  std::vector<std::string> nested = test::required_paths(true);
  EXPECT_TRUE(config_text_refused(R"({"text_config": {}})", nested));
  EXPECT_TRUE(config_text_refused("{}", test::required_paths(false)));
  json two = without(without(test::flat_config(), "q_lora_rank"), "situ_beta");
  EXPECT_TRUE(config_refused(two, {"expected q_lora_rank, situ_beta", "none of these 2"}));
}

TEST(ConfigReader, WrongTypesAreRefused) {
  for (const json& wrong : {json("128"), json(true), json(nullptr), json::array({128}),
                            json::object(), json(128.5), json(128.0), json(-128), json(0)}) {
    EXPECT_TRUE(config_refused(nested_with("text_config.hidden_size", wrong),
                               {"text_config.hidden_size", "expected a whole number", "found"}))
        << wrong;
    EXPECT_TRUE(config_refused(nested_with("text_config.linear_attn_config.num_heads", wrong),
                               {"text_config.linear_attn_config.num_heads", "expected", "found"}));
  }
  for (const json& wrong : {json("1e-5"), json(false), json(nullptr), json::array()}) {
    EXPECT_TRUE(
        config_refused(flat_with("rms_norm_eps", wrong), {"rms_norm_eps", "number", "found"}));
    EXPECT_TRUE(config_refused(flat_with("gate_lower_bound", wrong),
                               {"gate_lower_bound", "number", "found"}));
  }
  EXPECT_TRUE(
      config_refused(flat_with("full_attn_layers", 4), {"full_attn_layers", "array", "found 4"}));
  EXPECT_TRUE(
      config_refused(nested_with("text_config", 4), {"text_config", "an object", "found 4"}));
  EXPECT_TRUE(config_refused(nested_with("text_config.linear_attn_config", nullptr),
                             {"text_config.linear_attn_config", "an object", "found null"}));
}

TEST(ConfigReader, BooleansOfAnotherTypeAreRefusedNotDefaulted) {
  for (const char* key : {"mla_use_output_gate", "moe_renormalize", "latent_moe_use_norm"}) {
    for (const json& wrong : {json(1), json(0), json("true"), json(nullptr)}) {
      EXPECT_TRUE(
          config_refused(flat_with(key, wrong), {key, "true or false", "found " + wrong.dump()}));
    }
  }
}

TEST(ConfigReader, DuplicateKeysAreRefused) {
  const auto doubled = [](const std::string& field, const std::string& more) {
    std::string text = test::nested_config().dump();
    const std::size_t at = text.find(field);
    return text.replace(at, field.size(), field + "," + more);
  };
  EXPECT_TRUE(config_text_refused(doubled("\"hidden_size\":128", "\"hidden_size\":128"),
                                  {"hidden_size", "once", "twice"}));
  EXPECT_TRUE(config_text_refused(doubled("\"head_dim\":16", "\"head_dim\":32"),
                                  {"head_dim", "once", "twice"}));
  EXPECT_TRUE(config_text_refused(doubled("\"group_size\":32", "\"group_size\":32"),
                                  {"group_size", "once", "twice"}));
  const std::string text = test::nested_config().dump();
  EXPECT_TRUE(config_text_refused(text.substr(0, text.size() - 1) + R"(,"text_config":{}})",
                                  {"text_config", "once", "twice"}));
  // An escaped spelling is the same key; equal keys of different objects are fine.
  EXPECT_TRUE(
      config_text_refused(doubled("\"head_dim\":16", "\"head\\u005fdim\":16"), {"head_dim"}));
}

TEST(ConfigReader, TextThatIsNoConfigIsRefused) {
  EXPECT_TRUE(config_text_refused("", {"empty file"}));
  EXPECT_TRUE(config_text_refused("   ", {"not valid JSON"}));
  EXPECT_TRUE(config_text_refused("[]", {"top level", "an array"}));
  EXPECT_TRUE(config_text_refused("7", {"top level", "found 7"}));
  EXPECT_TRUE(config_text_refused(R"({"hidden_size": )", {"not valid JSON"}));
  EXPECT_TRUE(config_text_refused("{} {}", {"not valid JSON"}));
  EXPECT_TRUE(config_text_refused(R"({"hidden_size": "a)"
                                  "\xff"
                                  "\"}",
                                  {"not valid JSON"}));
  EXPECT_TRUE(config_text_refused(std::string("{\0}", 3), {"not valid JSON"}));
  EXPECT_TRUE(
      config_text_refused("version https://git-lfs.github.com/spec/v1\n", {"not valid JSON"}));
}

TEST(ConfigReader, DeepNestingIsRefused) {
  EXPECT_TRUE(config_text_refused(std::string(1'000'000, '['), {"nesting", "at most 64"}));
  std::string objects;
  for (int level = 0; level < 100'000; ++level) {
    objects += R"({"a":)";
  }
  EXPECT_TRUE(config_text_refused(objects, {"nesting", "at most 64"}));
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
  EXPECT_EQ(read_config(dir.path() / "good.json"), small_model());
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

#include "runtime/packed_trunk.h"

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "k3/errors.h"

#include "io/config_reader.h"
#include "support/expect_error.h"
#include "support/faulty_file_system.h"
#include "support/paths.h"
#include "support/safetensors_builder.h"

namespace k3::runtime {
namespace {

using model::TensorRole;
using model::TensorSpec;
using nlohmann::json;
using test::throws;

const std::string kLayers = "language_model.model.layers.";

// The packed trunk of the fixture model `edge`, made by others' rules, in a folder to damage.
class PackedTrunkTest : public testing::Test {
 protected:
  PackedTrunkTest()
      : config_(io::read_config(model_dir() / "config.json")),
        checkpoint_(io::posix_file_system(), model_dir(), config_) {
    const std::filesystem::path origin = test::fixture("trunk/edge");
    data_ = test::read_file(origin / "trunk.bin");
    manifest_ = json::parse(test::read_file(origin / "trunk.json"));
    write();
  }

  static std::filesystem::path model_dir() { return test::fixture("models/edge"); }

  void write() const {
    test::write_file(dir_.path() / "trunk.bin", data_);
    test::write_file(dir_.path() / "trunk.json", manifest_.dump());
  }

  [[nodiscard]] PackedTrunk open() const {
    return {io::posix_file_system(), dir_.path(), checkpoint_, config_};
  }

  [[nodiscard]] testing::AssertionResult refused(const std::vector<std::string>& parts) const {
    write();
    return throws(ErrorKind::kUserFile, parts, [&] { static_cast<void>(open()); });
  }

  json& tensor(std::size_t layer, const std::string& name) {
    return manifest_["layers"][layer]["tensors"][full_name(layer, name)];
  }

  static std::string full_name(std::size_t layer, const std::string& name) {
    return kLayers + std::to_string(layer) + "." + name;
  }

  // Every trunk tensor of the first `layers` layers lies in trunk.bin as in the shards.
  void expect_equal_to_shards(const PackedTrunk& trunk, std::size_t layers) const {
    std::size_t count = 0;
    for (std::size_t layer = 0; layer < layers; ++layer) {
      model::for_each_trunk_tensor(config_, layer, [&](const TensorSpec& spec) {
        const std::optional<TensorExtent> wanted = checkpoint_.find(layer, spec.role);
        const auto found = trunk.find(layer, spec.role);
        ASSERT_EQ(found.has_value(), wanted.has_value()) << spec.name;
        if (found.has_value()) {
          std::string bytes(wanted->nbytes, '?');
          checkpoint_.read_bytes(*wanted, 0, std::as_writable_bytes(std::span(bytes)));
          EXPECT_EQ(found->nbytes, wanted->nbytes) << spec.name;
          EXPECT_EQ(data_.substr(found->offset, found->nbytes), bytes) << spec.name;
          ++count;
        }
      });
    }
    EXPECT_GE(count, layers * 20);
  }

  test::TempDir dir_;
  ModelConfig config_;
  Checkpoint checkpoint_;
  std::string data_;
  json manifest_;
};

TEST_F(PackedTrunkTest, EveryTensorOfOthersTrunkIsFoundWhereItsBytesAre) {
  const PackedTrunk trunk = open();
  EXPECT_EQ(trunk.data_path(), dir_.path() / "trunk.bin");
  expect_equal_to_shards(trunk, config_.num_hidden_layers);
}

TEST_F(PackedTrunkTest, WhatATrunkDoesNotHoldIsNotFound) {
  const PackedTrunk trunk = open();
  EXPECT_EQ(trunk.find(model::kNoIndex, TensorRole::kHead), std::nullopt);
  EXPECT_EQ(trunk.find(model::kNoIndex, TensorRole::kEmbedding), std::nullopt);
  EXPECT_EQ(trunk.find(0, TensorRole::kHead), std::nullopt);
  EXPECT_EQ(trunk.find(0, TensorRole::kRouter), std::nullopt);     // dense
  EXPECT_EQ(trunk.find(2, TensorRole::kDenseGate), std::nullopt);  // MoE
  EXPECT_EQ(trunk.find(2, TensorRole::kExpertW1), std::nullopt);
  EXPECT_EQ(trunk.find(2, TensorRole::kExpertW3Scale), std::nullopt);
  EXPECT_EQ(trunk.find(3, TensorRole::kInputNorm), std::nullopt);  // no such layer
}

TEST_F(PackedTrunkTest, TheRunMayUseFewerLayers) {
  config_.num_hidden_layers = 2;
  const PackedTrunk trunk = open();
  EXPECT_TRUE(trunk.find(1, TensorRole::kInputNorm).has_value());
  EXPECT_EQ(trunk.find(2, TensorRole::kInputNorm), std::nullopt);
  expect_equal_to_shards(trunk, 2);
}

TEST_F(PackedTrunkTest, AMissingTensorOfALaterLayerIsFineUntilItIsUsed) {
  manifest_["layers"][2]["tensors"].erase(full_name(2, "input_layernorm.weight"));
  EXPECT_TRUE(refused({"trunk.json", full_name(2, "input_layernorm.weight"), "missing tensor"}));
  config_.num_hidden_layers = 2;
  EXPECT_NO_THROW(static_cast<void>(open()));
}

TEST_F(PackedTrunkTest, UnknownKeysTensorsAndBytesAfterTheLastRunAreFine) {
  manifest_["comment"] = "made elsewhere";
  manifest_["layers"][0]["note"] = {1, 2, 3};
  manifest_["layers"][0]["tensors"]["vision.weight"] = {
      {"off", manifest_["layers"][0]["nbytes"]}, {"nbytes", 0}, {"dtype", "I8"}, {"shape", {0}}};
  data_ += "tail";
  write();
  expect_equal_to_shards(open(), config_.num_hidden_layers);
}

TEST_F(PackedTrunkTest, AnyTensorThatTheRunUsesIsRequired) {
  const json whole = manifest_;
  model::for_each_trunk_tensor(config_, 2, [&](const TensorSpec& spec) {
    if (spec.used) {
      manifest_ = whole;
      manifest_["layers"][2]["tensors"].erase(spec.name);
      EXPECT_TRUE(refused({"trunk.json", spec.name, "missing tensor", "layer 2"}));
    }
  });
}

TEST_F(PackedTrunkTest, TooFewLayersAreRefused) {
  manifest_["layers"].erase(2);
  EXPECT_TRUE(refused({"trunk.json", "layers", "missing layer", "layer 2"}));
  manifest_["n_layers"] = 2;
  EXPECT_TRUE(refused({"trunk.json", "n_layers", "expected 3 or more", "found 2"}));
}

TEST_F(PackedTrunkTest, ATensorOfAnotherTypeOrShapeIsRefused) {
  const json whole = manifest_;
  const std::string name = "self_attn.f_b_proj.weight";
  json& matrix = tensor(0, name);
  matrix["shape"] = {matrix["shape"][1], matrix["shape"][0]};
  EXPECT_TRUE(refused({full_name(0, name), "shape differs from the checkpoint's"}));
  matrix = whole["layers"][0]["tensors"][full_name(0, name)];
  matrix["dtype"] = matrix["dtype"] == "BF16" ? "F16" : "I32";
  EXPECT_TRUE(refused({full_name(0, name), "dtype differs from the checkpoint's"}));
  matrix["dtype"] = "bf16";
  EXPECT_TRUE(refused({full_name(0, name), "dtype differs", "found bf16"}));
  manifest_ = whole;
  json& halved = tensor(0, name);
  halved["shape"][0] = halved["shape"][0].get<std::size_t>() / 2;
  halved["nbytes"] = halved["nbytes"].get<std::size_t>() / 2;
  EXPECT_TRUE(refused({full_name(0, name), "shape differs from the checkpoint's"}));
}

TEST_F(PackedTrunkTest, ATruncatedTrunkIsRefusedBeforeItsDataAreRead) {
  data_.pop_back();
  EXPECT_TRUE(refused({"trunk.bin", "truncated", "at least 200704 bytes", "found 200703 bytes"}));
  data_.clear();
  EXPECT_TRUE(refused({"trunk.bin", "truncated", "found 0 bytes"}));
  test::FaultyFileSystem unreadable({});
  unreadable.add("trunk.bin", {.eio_from_byte = 0});
  data_ = test::read_file(test::fixture("trunk/edge") / "trunk.bin");
  write();
  EXPECT_NO_THROW(PackedTrunk(unreadable, dir_.path(), checkpoint_, config_));
}

TEST_F(PackedTrunkTest, MissingFilesAreNamed) {
  std::filesystem::remove(dir_.path() / "trunk.bin");
  EXPECT_TRUE(throws(ErrorKind::kUserFile, {(dir_.path() / "trunk.bin").string(), "No such file"},
                     [&] { static_cast<void>(open()); }));
  write();
  std::filesystem::remove(dir_.path() / "trunk.json");
  EXPECT_TRUE(throws(ErrorKind::kUserFile, {(dir_.path() / "trunk.json").string(), "No such file"},
                     [&] { static_cast<void>(open()); }));
}

TEST_F(PackedTrunkTest, AManifestThatIsNoneIsRefused) {
  manifest_["layers"][1]["file_off"] = 5;
  EXPECT_TRUE(refused({"trunk.json", "layers[1]: file_off", "not aligned"}));
}

}  // namespace
}  // namespace k3::runtime

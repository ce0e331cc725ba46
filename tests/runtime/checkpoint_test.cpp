#include "runtime/checkpoint.h"

#include <bit>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "k3/errors.h"

#include "io/config_reader.h"
#include "support/expect_error.h"
#include "support/faulty_file_system.h"
#include "support/paths.h"
#include "support/safetensors_builder.h"
#include "support/tiny_checkpoint.h"

namespace k3::runtime {
namespace {

using model::TensorRole;
using model::TensorSpec;
using test::throws;
using test::TinyCheckpoint;

const std::string kLayers = "language_model.model.layers.";
const std::string kExpert = kLayers + "1.block_sparse_moe.experts.2.";

class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() : config_(test::tiny_config()), tiny_(config_) {}

  [[nodiscard]] Checkpoint bind() const {
    tiny_.write(dir_.path());
    return open();
  }

  [[nodiscard]] Checkpoint open() const { return {io::posix_file_system(), dir_.path(), config_}; }

  [[nodiscard]] testing::AssertionResult refused(const std::vector<std::string>& parts) const {
    return throws(ErrorKind::kCheckpoint, parts, [&] { static_cast<void>(bind()); });
  }

  [[nodiscard]] std::filesystem::path shard(std::size_t number) const {
    return dir_.path() / TinyCheckpoint::shard_name(number);
  }

  // The spec of a trunk tensor.
  [[nodiscard]] TensorSpec spec(std::size_t layer, TensorRole role) const {
    TensorSpec found;
    model::for_each_tensor(config_, [&](const TensorSpec& candidate) {
      if (candidate.layer == layer && candidate.role == role) {
        found = candidate;
      }
    });
    return found;
  }

  test::TempDir dir_;
  ModelConfig config_;
  TinyCheckpoint tiny_;
};

std::string bytes_of(const Checkpoint& checkpoint, const TensorExtent& extent) {
  std::string bytes(extent.nbytes, '?');
  checkpoint.read_bytes(extent, 0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

TEST_F(CheckpointTest, EveryTensorOfThePlanIsBoundToItsBytes) {
  const Checkpoint checkpoint = bind();
  std::size_t count = 0;
  std::uint64_t trunk_bytes = 0;
  std::uint64_t expert_bytes = 0;
  model::for_each_tensor(config_, [&](const TensorSpec& wanted) {
    ++count;
    const bool routed = wanted.expert != model::kNoIndex;
    const std::size_t part =
        static_cast<std::size_t>(wanted.role) - static_cast<std::size_t>(TensorRole::kExpertW1);
    const TensorExtent extent = routed ? checkpoint.expert(wanted.layer, wanted.expert).at(part)
                                       : checkpoint.tensor(wanted.layer, wanted.role);
    (routed ? expert_bytes : trunk_bytes) += extent.nbytes;
    EXPECT_EQ(bytes_of(checkpoint, extent), tiny_.at(wanted.name).data) << wanted.name;
  });
  EXPECT_EQ(checkpoint.bound_tensor_count(), count);
  EXPECT_EQ(checkpoint.trunk_bytes(), trunk_bytes);
  EXPECT_EQ(checkpoint.expert_bytes(), expert_bytes);
}

TEST_F(CheckpointTest, TensorsThatALayerLacksAreNotThere) {
  const Checkpoint checkpoint = bind();
  EXPECT_EQ(checkpoint.find(0, TensorRole::kRouter), std::nullopt);     // dense
  EXPECT_EQ(checkpoint.find(1, TensorRole::kDenseGate), std::nullopt);  // MoE
  EXPECT_EQ(checkpoint.find(0, TensorRole::kMlaQA), std::nullopt);      // KDA
  EXPECT_EQ(checkpoint.find(2, TensorRole::kKdaQ), std::nullopt);       // MLA
  EXPECT_EQ(checkpoint.find(3, TensorRole::kInputNorm), std::nullopt);  // no such layer
  EXPECT_EQ(checkpoint.find(0, TensorRole::kHead), std::nullopt);       // model level
  EXPECT_TRUE(checkpoint.find(model::kNoIndex, TensorRole::kHead).has_value());
  EXPECT_THROW(static_cast<void>(checkpoint.tensor(0, TensorRole::kRouter)), std::logic_error);
  EXPECT_THROW(static_cast<void>(checkpoint.expert(0, 0)), std::logic_error);
  EXPECT_THROW(static_cast<void>(checkpoint.expert(1, 3)), std::logic_error);
  EXPECT_THROW(static_cast<void>(checkpoint.expert(3, 0)), std::logic_error);
}

TEST_F(CheckpointTest, AMissingTensorIsNamed) {
  tiny_.erase(kLayers + "1.self_attn.dt_bias");
  EXPECT_TRUE(refused({kLayers + "1.self_attn.dt_bias", "missing", "none of 4 shards"}));
}

TEST_F(CheckpointTest, OfManyMissingTensorsTheFirstIsNamedAndAllAreCounted) {
  tiny_.erase(kExpert + "w1.weight_packed");
  tiny_.erase(kExpert + "w3.weight_scale");
  tiny_.erase(kLayers + "2.mlp_res_proj.weight");
  EXPECT_TRUE(refused({kExpert + "w1.weight_packed", "missing", "first of 3"}));
}

TEST_F(CheckpointTest, AnyTensorOfThePlanIsRequired) {
  model::for_each_tensor(config_, [&](const TensorSpec& wanted) {
    TinyCheckpoint other(config_);
    other.erase(wanted.name);
    other.write(dir_.path());
    EXPECT_TRUE(throws(ErrorKind::kCheckpoint, {wanted.name, "missing"},
                       [&] { static_cast<void>(open()); }));
  });
}

TEST_F(CheckpointTest, ADamagedShardIsNamedOnlyWhenItIsNeeded) {
  tiny_.write(dir_.path());
  std::filesystem::resize_file(shard(3), std::filesystem::file_size(shard(3)) - 1);
  EXPECT_TRUE(throws(ErrorKind::kCheckpoint,
                     {kLayers + "2.self_attention_res_norm.weight", "first of",
                      TinyCheckpoint::shard_name(3), "truncated", "expected", "found"},
                     [&] { static_cast<void>(open()); }));
  config_.num_hidden_layers = 2;
  EXPECT_NO_THROW(static_cast<void>(open()));
}

TEST_F(CheckpointTest, WithFewerLayersLaterShardsMayBeMissing) {
  tiny_.write(dir_.path());
  tiny_.write_weight_map(dir_.path());
  std::filesystem::remove(shard(2));
  std::filesystem::remove(shard(3));
  EXPECT_TRUE(throws(ErrorKind::kCheckpoint, {kLayers + "1.", "no file " + shard(2).string()},
                     [&] { static_cast<void>(open()); }));
  config_.num_hidden_layers = 1;
  const Checkpoint checkpoint = open();
  EXPECT_TRUE(checkpoint.find(model::kNoIndex, TensorRole::kHead).has_value());
}

TEST_F(CheckpointTest, TheShardOfTheModelLevelIsAlwaysNeeded) {
  tiny_.write(dir_.path());
  std::filesystem::remove(shard(4));
  config_.num_hidden_layers = 1;
  EXPECT_TRUE(throws(ErrorKind::kCheckpoint,
                     {"language_model.model.embed_tokens.weight", "first of 5", "1 absent",
                      TinyCheckpoint::shard_name(4)},
                     [&] { static_cast<void>(open()); }));
}

TEST_F(CheckpointTest, ShapesAreComparedAxisByAxis) {
  const std::string name = kLayers + "0.self_attn.f_b_proj.weight";  // [16, 8]
  for (const std::vector<std::size_t>& shape :
       std::vector<std::vector<std::size_t>>{{8, 16}, {128}, {16, 8, 1}, {1, 16, 8}, {16, 7}}) {
    tiny_.set(name, "BF16", shape);
    EXPECT_TRUE(refused(
        {TinyCheckpoint::shard_name(1), name, "wrong shape", "expected [16, 8]", "found ["}));
  }
  tiny_.set(name, "BF16", {8, 16});
  EXPECT_TRUE(refused({"expected [16, 8], found [8, 16]"}));
}

TEST_F(CheckpointTest, ATransposedVectorIsRefused) {
  tiny_.set(kLayers + "0.mlp_res_proj.weight", "BF16", {24, 1});
  EXPECT_TRUE(refused({"mlp_res_proj", "expected [1, 24], found [24, 1]"}));
}

TEST_F(CheckpointTest, ExpertShapesAreChecked) {
  tiny_.set(kExpert + "w2.weight_scale", "U8", {32, 4});
  EXPECT_TRUE(refused({kExpert + "w2.weight_scale", "expected [32, 2], found [32, 4]"}));
}

TEST_F(CheckpointTest, ALogMayBeLongerButOfRankOne) {
  const std::string name = kLayers + "0.self_attn.A_log";
  for (const std::size_t length : {2U, 3U, 8U}) {
    tiny_.set(name, "F32", {length});
    EXPECT_NO_THROW(static_cast<void>(bind())) << length;
  }
  tiny_.set(name, "F32", {1});
  EXPECT_TRUE(refused({name, "expected [2] or longer, found [1]"}));
  tiny_.set(name, "F32", {2, 1});
  EXPECT_TRUE(refused({name, "expected [2] or longer, found [2, 1]"}));
  tiny_.set(name, "F32", {});
  EXPECT_TRUE(refused({name, "expected [2] or longer, found []"}));
  // No other vector may be longer.
  tiny_.set(name, "F32", {2});
  tiny_.set(kLayers + "0.self_attn.dt_bias", "F32", {17});
  EXPECT_TRUE(refused({"dt_bias", "expected [16], found [17]"}));
}

struct TypeCase {
  std::string name;
  std::string dtype;
  std::string refusal;  // empty: accepted
};

TEST_F(CheckpointTest, TypesAreDecidedPerTensor) {
  const std::string matrix = kLayers + "0.self_attn.f_b_proj.weight";
  const std::string vector = kLayers + "1.input_layernorm.weight";
  const std::string packed = kExpert + "w1.weight_packed";
  const std::string scale = kExpert + "w1.weight_scale";
  const std::vector<TypeCase> cases = {
      {matrix, "BF16", ""},
      {matrix, "F32", ""},
      {matrix, "F16", "BF16 or F32 for a matrix"},
      {matrix, "U8", "BF16 or F32"},
      {matrix, "F64", "BF16 or F32"},
      {vector, "BF16", ""},
      {vector, "F32", ""},
      {vector, "F16", ""},
      {vector, "F64", "BF16, F32 or F16"},
      {vector, "U8", "BF16, F32 or F16"},
      {packed, "U8", ""},
      {packed, "I8", "U8 for packed"},
      {packed, "F8_E8M0", "U8 for packed"},
      {packed, "BF16", "U8 for packed"},
      {scale, "U8", ""},
      {scale, "F8_E8M0", ""},
      {scale, "BF16", "U8 or F8_E8M0"},
      {scale, "F8_E4M3", "U8 or F8_E8M0"},
  };
  for (const TypeCase& each : cases) {
    TinyCheckpoint other(config_);
    other.set(each.name, each.dtype, other.at(each.name).shape,
              each.dtype == "I8" || each.dtype == "F8_E4M3" ? other.at(each.name).data : "");
    other.write(dir_.path());
    if (each.refusal.empty()) {
      EXPECT_NO_THROW(static_cast<void>(open())) << each.name << " " << each.dtype;
    } else {
      EXPECT_TRUE(
          throws(ErrorKind::kCheckpoint,
                 {each.name, "wrong type", "expected " + each.refusal, "found " + each.dtype},
                 [&] { static_cast<void>(open()); }));
    }
  }
}

TEST_F(CheckpointTest, UnusedTensorsMayBeMissingOrAnything) {
  config_.mla_use_output_gate = false;
  config_.latent_moe_use_norm = false;
  tiny_.erase(kLayers + "2.self_attn.g_proj.weight");
  tiny_.set(kLayers + "1.block_sparse_moe.routed_expert_norm.weight", "F64", {5, 5});
  const Checkpoint checkpoint = bind();
  EXPECT_EQ(checkpoint.find(2, TensorRole::kGate), std::nullopt);
  EXPECT_EQ(checkpoint.find(1, TensorRole::kLatentNorm), std::nullopt);
  EXPECT_TRUE(checkpoint.find(1, TensorRole::kGate).has_value());  // KDA's own gate is used
}

TEST_F(CheckpointTest, ExtraTensorsAreFine) {
  tiny_.write(dir_.path());
  test::SafetensorsBuilder()
      .add("vision_tower.patch_embed.proj.weight", "F64", "[1,1,1,1]", "12345678")
      .write(dir_.path() / "vision.safetensors");
  EXPECT_EQ(open().index().shard_count(), 5U);
}

TEST_F(CheckpointTest, BindingReadsNoData) {
  tiny_.write(dir_.path());
  // What a header costs: the first bytes, which tell placeholders apart, and the header itself.
  constexpr std::uint64_t kStartBytes = 23;
  std::uint64_t header_bytes = 0;
  for (std::size_t number = 1; number <= 4; ++number) {
    std::uint64_t length = 0;
    test::read_file(shard(number)).copy(reinterpret_cast<char*>(&length), sizeof(length));
    header_bytes += kStartBytes + length;
  }
  test::FaultyFileSystem file_system({});
  const Checkpoint checkpoint(file_system, dir_.path(), config_);
  EXPECT_EQ(file_system.bytes_read(), header_bytes);
}

TEST_F(CheckpointTest, VectorsAreWidenedExactly) {
  const std::string name = kLayers + "1.input_layernorm.weight";
  const TensorSpec wanted = spec(1, TensorRole::kInputNorm);
  const Checkpoint as_f32 = bind();
  const std::vector<float> values = as_f32.read_vector(wanted);
  ASSERT_EQ(values.size(), 24U);
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint32_t bits = 0;
    tiny_.at(name).data.copy(reinterpret_cast<char*>(&bits), 4, 4 * i);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(values[i]), bits);
  }
  tiny_.set(name, "BF16", {24});
  const std::vector<float> halves = bind().read_vector(wanted);
  for (std::size_t i = 0; i < halves.size(); ++i) {
    std::uint16_t bits = 0;
    tiny_.at(name).data.copy(reinterpret_cast<char*>(&bits), 2, 2 * i);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(halves[i]), std::uint32_t{bits} << 16U);
  }
  std::string ones;
  for (int i = 0; i < 24; ++i) {
    ones += std::string("\x00\x3e", 2);  // 1.5 in F16
  }
  tiny_.set(name, "F16", {24}, ones);
  EXPECT_EQ(bind().read_vector(wanted), std::vector<float>(24, 1.5F));
}

TEST_F(CheckpointTest, OfALongerVectorOnlyTheSpecsValuesAreRead) {
  tiny_.set(kLayers + "0.self_attn.A_log", "F32", {5});
  const Checkpoint checkpoint = bind();
  EXPECT_EQ(checkpoint.tensor(0, TensorRole::kKdaALog).nbytes, 20U);
  const std::vector<float> values = checkpoint.read_vector(spec(0, TensorRole::kKdaALog));
  ASSERT_EQ(values.size(), 2U);
  std::uint32_t second = 0;
  tiny_.at(kLayers + "0.self_attn.A_log").data.copy(reinterpret_cast<char*>(&second), 4, 4);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(values[1]), second);
}

TEST_F(CheckpointTest, PartsOfATensorAreRead) {
  const Checkpoint checkpoint = bind();
  const TensorExtent head = checkpoint.tensor(model::kNoIndex, TensorRole::kHead);
  std::string row(48, '?');  // row 3 of [10, 24] in BF16
  checkpoint.read_bytes(head, 3 * 48, std::as_writable_bytes(std::span(row)));
  EXPECT_EQ(row, tiny_.at("language_model.lm_head.weight").data.substr(3 * 48, 48));
  std::vector<std::byte> out(2);
  EXPECT_THROW(checkpoint.read_bytes(head, 479, out), std::logic_error);
  EXPECT_THROW(checkpoint.read_bytes(head, UINT64_MAX, out), std::logic_error);
}

TEST_F(CheckpointTest, AReadThatFailsNamesFileOffsetAndBytes) {
  tiny_.write(dir_.path());
  const Checkpoint checkpoint = open();
  const TensorExtent head = checkpoint.tensor(model::kNoIndex, TensorRole::kHead);
  // The shard shrinks after it has been bound.
  std::filesystem::resize_file(shard(4), head.offset + 100);
  std::vector<std::byte> bytes(head.nbytes);
  const std::vector<std::string> parts = {TinyCheckpoint::shard_name(4),
                                          "offset " + std::to_string(head.offset), "end of file",
                                          "expected 480 bytes", "found 100 bytes"};
  EXPECT_TRUE(throws(ErrorKind::kIo, parts, [&] { checkpoint.read_bytes(head, 0, bytes); }));
  EXPECT_TRUE(throws(ErrorKind::kExpertIo, parts,
                     [&] { checkpoint.read_bytes(head, 0, bytes, ErrorKind::kExpertIo); }));
}

// The checkpoint of others.

TEST(SharedCheckpoint, TheAcceptanceModelBinds) {
  const auto dir = test::shared("acceptance/released-like/model");
  if (dir.empty()) {
    GTEST_SKIP() << test::missing_shared("acceptance/released-like");
  }
  const ModelConfig config = io::read_config(dir / "config.json");
  const Checkpoint checkpoint(io::posix_file_system(), dir, config);
  EXPECT_EQ(checkpoint.index().shard_count(), 15U);
  EXPECT_EQ(checkpoint.index().tensor_count(), 919U);
  EXPECT_EQ(checkpoint.bound_tensor_count(), 916U);  // all but the three vision tensors
  EXPECT_EQ(checkpoint.expert_bytes(), 626'688U);
  EXPECT_EQ(checkpoint.trunk_bytes() + checkpoint.expert_bytes() + 288U, 3'629'600U);
  EXPECT_EQ(checkpoint.tensor(0, TensorRole::kKdaALog).shape[0], 16U);
}

}  // namespace
}  // namespace k3::runtime

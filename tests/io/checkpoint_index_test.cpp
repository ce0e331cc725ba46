#include "io/checkpoint_index.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "k3/errors.h"

#include "io/shard_names.h"
#include "support/expect_error.h"
#include "support/faulty_file_system.h"
#include "support/paths.h"
#include "support/safetensors_builder.h"

namespace k3::io {
namespace {

using test::SafetensorsBuilder;
using test::throws;

constexpr const char* kShard1 = "model-00001-of-000003.safetensors";
constexpr const char* kShard2 = "model-00002-of-000003.safetensors";
constexpr const char* kShard3 = "model-00003-of-000003.safetensors";

// Three shards with the tensors a1, a2 | b1 | c1.
class IndexTest : public testing::Test {
 protected:
  IndexTest() {
    SafetensorsBuilder()
        .add("a1", "U8", "[4]", "aaaa")
        .gap(3)
        .add("a2", "BF16", "[2,1]", "AAAA")
        .write(path(kShard1));
    SafetensorsBuilder().add("b1", "F64", "[1]", "bbbbbbbb").write(path(kShard2));
    SafetensorsBuilder().add("c1", "U8", "[4]", "cccc").write(path(kShard3));
  }

  [[nodiscard]] std::filesystem::path path(const std::string& name) const {
    return dir_.path() / name;
  }

  [[nodiscard]] CheckpointIndex index() const { return {posix_file_system(), dir_.path()}; }

  void write_weight_map(const std::string& entries) const {
    test::write_file(path("model.safetensors.index.json"),
                     R"({"metadata":{"total_size":1},"weight_map":{)" + entries + "}}");
  }

  // Cuts the last byte off a shard.
  void truncate(const std::string& name) const {
    std::filesystem::resize_file(path(name), std::filesystem::file_size(path(name)) - 1);
  }

  // The message of a tensor that is not found.
  [[nodiscard]] std::string explanation(const std::string& name) const {
    const CheckpointIndex all = index();
    EXPECT_EQ(all.find(name), std::nullopt);
    return Error(ErrorKind::kCheckpoint, all.explain_missing(name)).what();
  }

  test::TempDir dir_;
};

testing::AssertionResult holds(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    if (message.find(part) == std::string::npos) {
      return testing::AssertionFailure() << "no \"" << part << "\" in: " << message;
    }
  }
  return testing::AssertionSuccess();
}

TEST_F(IndexTest, FindsEveryTensorOfEveryShard) {
  const CheckpointIndex all = index();
  EXPECT_EQ(all.tensor_count(), 4U);
  EXPECT_EQ(all.shard_count(), 3U);
  EXPECT_EQ(all.damaged_shard_count(), 0U);
  const auto a2 = all.find("a2");
  ASSERT_TRUE(a2.has_value());
  EXPECT_EQ(a2->dtype, DType::kBf16);
  EXPECT_EQ(a2->dtype_text, "BF16");
  EXPECT_EQ(std::vector(a2->shape.begin(), a2->shape.end()), (std::vector<std::uint64_t>{2, 1}));
  EXPECT_EQ(a2->nbytes, 4U);
  EXPECT_EQ(a2->shard, 0U);
  EXPECT_EQ(all.shard_path(a2->shard), path(kShard1));
  EXPECT_EQ(test::read_file(path(kShard1)).substr(a2->offset, a2->nbytes), "AAAA");
  EXPECT_EQ(all.find("b1")->dtype, DType::kOther);
  EXPECT_EQ(all.find("b1")->dtype_text, "F64");
  EXPECT_EQ(all.find("c1")->shard, 2U);
  EXPECT_EQ(all.find("a"), std::nullopt);
  EXPECT_EQ(all.find(""), std::nullopt);
}

TEST_F(IndexTest, IdsLeadToTheSameEntries) {
  const CheckpointIndex all = index();
  for (const char* name : {"a1", "a2", "b1", "c1"}) {
    const auto id = all.find_id(name);
    ASSERT_TRUE(id.has_value());
    EXPECT_EQ(all.name(*id), name);
    EXPECT_EQ(all.entry(*id).offset, all.find(name)->offset);
  }
}

TEST_F(IndexTest, OtherFilesAreNotShards) {
  test::write_file(path("config.json"), "{}");
  test::write_file(path("._model.safetensors"), "what macOS leaves behind");
  test::write_file(path("model.safetensors.part"), "half a download");
  EXPECT_EQ(index().shard_count(), 3U);
}

TEST_F(IndexTest, LinkedShardsAreRead) {
  const std::filesystem::path blob = dir_.path() / "blob";
  std::filesystem::rename(path(kShard2), blob);
  std::filesystem::create_symlink(blob, path(kShard2));
  EXPECT_TRUE(index().find("b1").has_value());
}

TEST_F(IndexTest, DirectoriesWithoutShardsAreRefused) {
  const auto open = [](const std::filesystem::path& directory) {
    const CheckpointIndex unused(posix_file_system(), directory);
  };
  const test::TempDir empty;
  EXPECT_TRUE(throws(ErrorKind::kCheckpoint,
                     {empty.path().string(), "expected *.safetensors", "found none"},
                     [&] { open(empty.path()); }));
  EXPECT_TRUE(throws(ErrorKind::kCheckpoint, {"absent", "No such file"},
                     [&] { open(empty.path() / "absent"); }));
  EXPECT_TRUE(
      throws(ErrorKind::kCheckpoint, {kShard1, "Not a directory"}, [&] { open(path(kShard1)); }));
}

TEST_F(IndexTest, ANameInTwoShardsIsRefusedNamingBoth) {
  SafetensorsBuilder().add("a1", "U8", "[4]", "dddd").write(path(kShard3));
  EXPECT_TRUE(throws(ErrorKind::kCheckpoint, {"a1", kShard1, kShard3, "expected", "found"},
                     [&] { static_cast<void>(index()); }));
}

TEST_F(IndexTest, ADamagedShardContributesNothingAndHarmsNoOther) {
  truncate(kShard1);
  const CheckpointIndex all = index();
  EXPECT_EQ(all.tensor_count(), 2U);
  EXPECT_EQ(all.shard_count(), 3U);
  EXPECT_EQ(all.damaged_shard_count(), 1U);
  EXPECT_TRUE(all.find("b1").has_value());
  // The missing byte belongs to a2; a1 is refused all the same.
  EXPECT_EQ(all.find("a1"), std::nullopt);
  EXPECT_TRUE(holds(all.shard_fault(0), {kShard1, "a2", "truncated"}));
  EXPECT_EQ(all.shard_fault(1), "");
}

TEST_F(IndexTest, AMissingTensorOfADamagedShardIsExplainedByTheWeightMap) {
  write_weight_map(std::string(R"("a1":")") + kShard1 + R"(","b1":")" + kShard2 + R"(")");
  truncate(kShard1);
  truncate(kShard2);
  EXPECT_TRUE(holds(explanation("b1"), {"b1", "missing", kShard2, "damaged", "truncated",
                                        "expected 8 bytes", "found 7 bytes"}));
  EXPECT_TRUE(holds(explanation("a1"), {"a1", kShard1, "a2", "truncated", "expected 11 bytes"}));
}

TEST_F(IndexTest, WithoutAWeightMapTheFirstDamagedShardIsNamed) {
  truncate(kShard1);
  truncate(kShard2);
  EXPECT_TRUE(holds(explanation("b1"), {"b1", "missing", "2 damaged", kShard1, "truncated",
                                        "expected 11 bytes", "found 10 bytes"}));
}

TEST_F(IndexTest, AMissingShardIsNamedByTheWeightMap) {
  write_weight_map(std::string(R"("b1":")") + kShard2 + R"(")");
  std::filesystem::remove(path(kShard2));
  EXPECT_TRUE(holds(explanation("b1"), {"b1", "expected it in " + std::string(kShard2),
                                        "no file " + path(kShard2).string()}));
}

TEST_F(IndexTest, AMissingShardIsNamedByTheNumbering) {
  std::filesystem::remove(path(kShard2));
  EXPECT_TRUE(holds(explanation("b1"), {"b1", "missing", "1 absent", path(kShard2).string()}));
  std::filesystem::remove(path(kShard1));
  EXPECT_TRUE(holds(explanation("b1"), {"2 absent", path(kShard1).string()}));
}

TEST_F(IndexTest, ATensorThatAWholeShardLacksIsExplained) {
  EXPECT_TRUE(
      holds(explanation("zz"), {"zz", "missing", "none of 3 shards", dir_.path().string()}));
  write_weight_map(std::string(R"("zz":")") + kShard2 + R"(")");
  EXPECT_TRUE(holds(explanation("zz"), {kShard2, "does not hold it"}));
}

TEST_F(IndexTest, ABrokenWeightMapIsIgnored) {
  std::filesystem::remove(path(kShard2));
  for (const char* text :
       {"", "{", "[]", "{}", R"({"weight_map":[]})", R"({"weight_map":{"b1":5}})",
        R"({"weight_map":{"other":"x"}})", "\xff\xfe"}) {
    test::write_file(path("model.safetensors.index.json"), text);
    EXPECT_TRUE(holds(explanation("b1"), {"b1", "1 absent", kShard2})) << text;
  }
}

TEST_F(IndexTest, EveryKindOfDamageIsOneOfItsShardAlone) {
  const std::string whole = test::read_file(path(kShard2));
  const std::vector<std::string> damaged = {
      "",
      "version https://git-lfs.github.com/spec/v1\n",
      whole.substr(0, whole.size() / 2),
      test::safetensors_bytes("not json", ""),
      test::safetensors_bytes("[]", ""),
      test::safetensors_bytes(R"({"b1":{"dtype":"U8","shape":[9],"data_offsets":[0,1]}})", "x")};
  for (const std::string& bytes : damaged) {
    test::write_file(path(kShard2), bytes);
    const CheckpointIndex all = index();
    EXPECT_EQ(all.tensor_count(), 3U);
    EXPECT_EQ(all.damaged_shard_count(), 1U);
    EXPECT_TRUE(holds(all.shard_fault(1), {path(kShard2).string(), "expected", "found"}));
  }
  std::filesystem::remove(path(kShard2));
  std::filesystem::create_directory(path(kShard2));
  EXPECT_TRUE(holds(index().shard_fault(1), {kShard2, "Is a directory"}));
  std::filesystem::remove(path(kShard2));
  std::filesystem::create_symlink("nowhere", path(kShard2));
  EXPECT_TRUE(holds(index().shard_fault(1), {kShard2, "No such file"}));
}

TEST_F(IndexTest, ShortReadsAndInterruptionsDoNotMatter) {
  test::FaultyFileSystem file_system({.max_read_bytes = 3, .interruptions_per_read = 1});
  const CheckpointIndex all(file_system, dir_.path());
  EXPECT_EQ(all.tensor_count(), 4U);
  EXPECT_EQ(all.damaged_shard_count(), 0U);
}

TEST_F(IndexTest, AReadErrorIsADamagedShard) {
  test::FaultyFileSystem file_system({.eio_from_byte = 20});
  const CheckpointIndex all(file_system, dir_.path());
  EXPECT_EQ(all.damaged_shard_count(), 3U);
  EXPECT_TRUE(holds(all.shard_fault(0), {kShard1, "Input/output error"}));
}

TEST(ShardNames, AbsentNumbersKeepTheSpelling) {
  const AbsentShards absent = absent_shards(
      {"model-00001-of-000012.safetensors", "model-00003-of-000012.safetensors", "other"});
  EXPECT_EQ(absent.count, 10U);
  EXPECT_EQ(absent.first, "model-00002-of-000012.safetensors");
}

TEST(ShardNames, NamesWithoutNumbersTellNothing) {
  for (const char* name :
       {"model.safetensors", "-of-.safetensors", "model-1-of-x.safetensors", "1-of-2.bin",
        "model-00001-of-99999999999.safetensors", "a-of-3.safetensors", ""}) {
    EXPECT_EQ(absent_shards({name}).count, 0U) << name;
  }
  EXPECT_EQ(absent_shards({}).count, 0U);
  EXPECT_EQ(absent_shards({"1-of-2.safetensors"}).first, "2-of-2.safetensors");
  EXPECT_EQ(absent_shards({"9-of-2.safetensors"}).count, 2U);
}

// Files of others.

TEST(SharedShards, SmallFilesAreIndexed) {
  const auto dir = test::shared("peer/st");
  if (dir.empty()) {
    GTEST_SKIP() << test::missing_shared("peer/st");
  }
  const CheckpointIndex all(posix_file_system(), dir);
  EXPECT_EQ(all.shard_count(), 2U);
  EXPECT_EQ(all.damaged_shard_count(), 0U);
  EXPECT_EQ(all.tensor_count(), 13U);
  EXPECT_EQ(all.find("__metadata__"), std::nullopt);
  EXPECT_EQ(all.find("scalar.f32")->nbytes, 4U);
  EXPECT_TRUE(all.find("scalar.f32")->shape.empty());
  EXPECT_EQ(all.find("empty.f32")->nbytes, 0U);
  EXPECT_EQ(all.find("tricky.f16.1d")->dtype, DType::kF16);
  EXPECT_EQ(all.find("rank3.f32")->shape.size(), 3U);
  EXPECT_EQ(all.find("second.shard.u8")->shard, 1U);
  EXPECT_EQ(all.find(R"(weird\name."with"quotes)")->nbytes, 12U);
}

TEST(SharedShards, CacheFileIsIndexed) {
  const auto dir = test::shared("peer/cache");
  if (dir.empty()) {
    GTEST_SKIP() << test::missing_shared("peer/cache");
  }
  const CheckpointIndex all(posix_file_system(), dir);
  EXPECT_EQ(all.tensor_count(), 144U);
  const auto packed =
      all.find("language_model.model.layers.0.block_sparse_moe.experts.1.w1.weight_packed");
  ASSERT_TRUE(packed.has_value());
  EXPECT_EQ(packed->dtype, DType::kU8);
  EXPECT_EQ(packed->nbytes, 512U);
}

}  // namespace
}  // namespace k3::io

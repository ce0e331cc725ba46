#include "replica.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "k3/errors.h"

#include "io/checkpoint_index.h"
#include "io/config_reader.h"
#include "replica_config.h"
#include "runtime/checkpoint.h"
#include "support/configs.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/safetensors_builder.h"

namespace k3::tools {
namespace {

using test::throws;

TEST(Replica, ReleasedDimensionsAreThoseOfTheReleasedConfig) {
  EXPECT_EQ(released_config(), test::released_values());
}

TEST(Replica, ConfigTextIsReadBack) {
  EXPECT_EQ(io::parse_config(config_text(released_config()), "replica"), released_config());
  ModelConfig other = shrink(released_config(), 7, 5);
  other.rms_norm_eps = 0.1;
  other.moe_renormalize = false;
  EXPECT_EQ(io::parse_config(config_text(other), "replica"), other);
}

TEST(Replica, ShrinkingStaysWithinTheModel) {
  const ModelConfig small = shrink(released_config(), 4, 8);
  EXPECT_EQ(small.num_hidden_layers, 4U);
  EXPECT_EQ(small.is_mla, (std::vector<bool>{false, false, false, true}));
  EXPECT_EQ(small.num_experts_per_token, 8U);
  EXPECT_THROW(static_cast<void>(shrink(released_config(), 94, 1)), Error);
  EXPECT_THROW(static_cast<void>(shrink(released_config(), 0, 1)), Error);
  EXPECT_THROW(static_cast<void>(shrink(released_config(), 1, 897)), Error);
}

TEST(Replica, OnlyAnEmptyDirectoryIsWritten) {
  const test::TempDir dir;
  test::write_file(dir.path() / "model-00001-of-000096.safetensors", "precious");
  EXPECT_TRUE(throws(ErrorKind::kUsage, {dir.path().string(), "absent or empty"},
                     [&] { write_replica(shrink(released_config(), 1, 1), dir.path(), {}); }));
  EXPECT_EQ(test::read_file(dir.path() / "model-00001-of-000096.safetensors"), "precious");
}

// The promises of the index on the whole released layout.
TEST(Replica, TheReleasedLayoutIsIndexedAndBound) {
  const test::TempDir dir;
  const ModelConfig config = released_config();
  const ReplicaFacts facts = write_replica(config, dir.path(), {});
  EXPECT_EQ(facts.tensors, 497'220U);
  EXPECT_EQ(facts.shards, 96U);
  EXPECT_EQ(facts.shard_bytes, 1'560'936'091'448U);

  const runtime::Checkpoint checkpoint(io::posix_file_system(), dir.path(), config);
  EXPECT_EQ(checkpoint.index().tensor_count(), 497'220U);
  EXPECT_EQ(checkpoint.index().shard_count(), 96U);
  EXPECT_EQ(checkpoint.index().damaged_shard_count(), 0U);
  EXPECT_EQ(checkpoint.bound_tensor_count(), 497'220U - 168U);
  EXPECT_EQ(checkpoint.expert_bytes(), std::uint64_t{82'432} * 17'547'264);
  EXPECT_LT(checkpoint.memory_bytes(), 80'000'000U);
}

TEST(Replica, FileSizesAreThoseOfTheRelease) {
  const auto list = test::shared("spec/shards.tsv");
  if (list.empty()) {
    GTEST_SKIP() << test::missing_shared("spec/shards.tsv");
  }
  const test::TempDir dir;
  write_replica(released_config(), dir.path(), {});
  std::ifstream lines(list);
  std::string name;
  std::string bytes;
  lines >> name >> bytes;  // the heading
  std::size_t count = 0;
  for (; lines >> name >> bytes; ++count) {
    EXPECT_EQ(std::to_string(std::filesystem::file_size(dir.path() / name)), bytes) << name;
  }
  EXPECT_EQ(count, 96U);
}

TEST(Replica, ASmallOneHasTheSameLayout) {
  const test::TempDir dir;
  const ModelConfig config = shrink(released_config(), 5, 3);
  const ReplicaFacts facts =
      write_replica(config, dir.path(), {.vision = false, .weight_map = true});
  EXPECT_EQ(facts.shards, 6U);
  const io::CheckpointIndex index(io::posix_file_system(), dir.path());
  EXPECT_EQ(index.tensor_count(), facts.tensors);
  const auto head = index.find("language_model.lm_head.weight");
  ASSERT_TRUE(head.has_value());
  EXPECT_EQ(index.shard_path(head->shard).filename(), "model-00006-of-000006.safetensors");
  const auto expert =
      index.find("language_model.model.layers.4.block_sparse_moe.experts.2.w2.weight_scale");
  ASSERT_TRUE(expert.has_value());
  EXPECT_EQ(index.shard_path(expert->shard).filename(), "model-00005-of-000006.safetensors");
  // The weight map names the shard of a tensor that is gone.
  std::filesystem::remove(index.shard_path(expert->shard));
  EXPECT_TRUE(
      throws(ErrorKind::kCheckpoint, {"layers.4.", "model-00005-of-000006.safetensors"}, [&] {
        static_cast<void>(runtime::Checkpoint(io::posix_file_system(), dir.path(), config));
      }));
}

}  // namespace
}  // namespace k3::tools

// The files of a checkpoint that are read while it runs: which are open, aligned how, read by whom.
#include "runtime/weight_files.h"

#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/faulty_file_system.h"
#include "support/paths.h"
#include "support/safetensors_builder.h"
#include "support/tiny_checkpoint.h"

namespace k3::runtime {
namespace {

using test::FaultyFileSystem;

class WeightFilesTest : public testing::Test {
 protected:
  WeightFilesTest() { test::TinyCheckpoint(config_).write(dir_.path()); }

  [[nodiscard]] Checkpoint checkpoint() const {
    return {io::posix_file_system(), dir_.path(), config_};
  }

  ModelConfig config_ = test::tiny_config();
  test::TempDir dir_;
};

TEST_F(WeightFilesTest, OpensTheShardsOfTheRunAlone) {
  config_.num_hidden_layers = 1;
  config_.is_mla.resize(1);
  const Checkpoint part = checkpoint();
  FaultyFileSystem file_system({});
  const WeightFiles files(file_system, part, std::nullopt, true);
  int used = 0;
  for (std::uint32_t shard = 0; shard < part.index().shard_count(); ++shard) {
    if (part.uses_shard(shard)) {
      ++used;
      EXPECT_EQ(files.in_shard(shard, 7, 5).bytes, 5U);
    } else {
      EXPECT_THROW((void)files.in_shard(shard, 0, 1), std::logic_error);
    }
  }
  EXPECT_GT(part.index().shard_count(), static_cast<std::size_t>(used));
  EXPECT_EQ(file_system.opens(), used);
  EXPECT_THROW((void)files.in_trunk(0, 1), std::logic_error);
}

TEST_F(WeightFilesTest, TheLargestAlignmentServesAll) {
  FaultyFileSystem file_system({});
  file_system.add(test::TinyCheckpoint::shard_name(2), {.alignment = 4096});
  const Checkpoint whole = checkpoint();
  WeightFiles files(file_system, whole, std::nullopt, true);
  EXPECT_EQ(files.alignment(), 4096U);
  for (std::uint32_t shard = 0; shard < whole.index().shard_count(); ++shard) {
    if (whole.uses_shard(shard)) {
      EXPECT_EQ(files.memory_of(files.in_shard(shard, 1, 1)) % 4096, 0U);
    }
  }
  files.start_readers({.readers = 1, .request_bytes = 10'000});
  EXPECT_EQ(files.request_bytes(), 8192U);
  files.start_readers({.readers = 1, .request_bytes = 1});
  EXPECT_EQ(files.request_bytes(), 4096U);
}

TEST_F(WeightFilesTest, EveryDeviceHasReadersOfItsOwn) {
  FaultyFileSystem file_system({});
  file_system.add(test::TinyCheckpoint::shard_name(2), {.device = 2});
  const Checkpoint whole = checkpoint();
  WeightFiles files(file_system, whole, std::nullopt, true);
  files.start_readers({.readers = 1});
  const ReaderPool* first = nullptr;
  const ReaderPool* second = nullptr;
  for (std::uint32_t shard = 0; shard < whole.index().shard_count(); ++shard) {
    const bool on_second =
        whole.index().shard_path(shard).filename() == test::TinyCheckpoint::shard_name(2);
    const ReaderPool*& pool = on_second ? second : first;
    if (whole.uses_shard(shard)) {
      const ReaderPool* found = files.in_shard(shard, 0, 1).source->pool;
      EXPECT_TRUE(pool == nullptr || pool == found);
      pool = found;
    }
  }
  EXPECT_NE(first, nullptr);
  EXPECT_NE(second, nullptr);
  EXPECT_NE(first, second);
}

TEST_F(WeightFilesTest, AFileWithoutDirectReadsIsSaidOnce) {
  FaultyFileSystem file_system({});
  file_system.add(test::TinyCheckpoint::shard_name(2), {.refuse_direct = true});
  const Checkpoint whole = checkpoint();
  WeightFiles files(file_system, whole, std::nullopt, true);
  EXPECT_FALSE(files.all_direct());
  const std::vector<std::string> notices = files.take_notices();
  ASSERT_EQ(notices.size(), 1U);
  EXPECT_NE(notices[0].find(test::TinyCheckpoint::shard_name(2)), std::string::npos) << notices[0];
  EXPECT_TRUE(files.take_notices().empty());
}

TEST_F(WeightFilesTest, TheLargestFilesComeFirst) {
  FaultyFileSystem file_system({});
  const Checkpoint whole = checkpoint();
  const WeightFiles files(file_system, whole, std::nullopt, true);
  const std::vector<std::filesystem::path> all = files.largest_files(100);
  ASSERT_GT(all.size(), 2U);
  for (std::size_t i = 1; i < all.size(); ++i) {
    EXPECT_GE(std::filesystem::file_size(all[i - 1]), std::filesystem::file_size(all[i]));
  }
  EXPECT_EQ(files.largest_files(2), std::vector(all.begin(), all.begin() + 2));
}

}  // namespace
}  // namespace k3::runtime

// The tape hands out the bytes of the checkpoint, whatever the files and the caller do.
// Over 400 lines because every promise of the tape has its test.
#include "runtime/weight_tape.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "k3/errors.h"

#include "base/float_bits.h"
#include "model/tensor_plan.h"
#include "support/expect_error.h"
#include "support/faulty_file_system.h"
#include "support/paths.h"
#include "support/streamed_checkpoint.h"
#include "support/tiny_checkpoint.h"

namespace k3::runtime {
namespace {

using model::MatrixId;
using model::PassPlan;
using model::TensorRole;
using test::Faults;
using test::FaultyFileSystem;
using test::StreamedCheckpoint;
using test::throws;

constexpr std::size_t kSmallTile = 300;  // bytes: some rows of most matrices
constexpr ReadSettings kSettings{.readers = 2, .request_bytes = 512};

class WeightTape : public testing::Test {
 protected:
  WeightTape() {
    test::TinyCheckpoint tensors(config_);
    for (const TensorRole role : {TensorRole::kRouter, TensorRole::kSharedUp}) {
      model::for_each_trunk_tensor(config_, 2, [&](const model::TensorSpec& spec) {
        if (spec.role == role) {
          tensors.set(spec.name, "F32", {spec.shape[0], spec.shape[1]});
        }
      });
    }
    tensors.write(dir_.path());
    for (const std::size_t shard : {1U, 2U, 3U}) {
      test::shift_tensors(dir_.path() / test::TinyCheckpoint::shard_name(shard), shard);
    }
    const Checkpoint checkpoint(io::posix_file_system(), dir_.path(), config_);
    model::for_each_tape_matrix(config_, [&](const model::TensorSpec& spec) {
      matrices_.emplace_back(
          MatrixId{spec.layer, spec.role},
          test::tensor_bytes(checkpoint, checkpoint.tensor(spec.layer, spec.role)));
    });
  }

  [[nodiscard]] StreamedCheckpoint open(FaultyFileSystem& file_system,
                                        const ReadSettings& settings = kSettings,
                                        bool direct = true) const {
    return {file_system, dir_.path(), config_, settings, direct};
  }

  [[nodiscard]] TapeLayout layout(const StreamedCheckpoint& weights,
                                  std::size_t tile_bytes = kSmallTile) const {
    return tape_layout(weights.checkpoint, nullptr, weights.files, config_, tile_bytes);
  }

  // A tape that streams everything, through a ring of two tiles.
  [[nodiscard]] std::unique_ptr<StreamedTape> streamed(const StreamedCheckpoint& weights,
                                                       StopFlag stop = nullptr) const {
    const TapeLayout tiles = layout(weights);
    return std::make_unique<StreamedTape>(
        weights.checkpoint, weights.files, tiles,
        StreamedTape::Options{.pinned = std::vector<bool>(tiles.tiles.size()),
                              .ring_bytes = 2 * tiles.largest_tile,
                              .stop = stop});
  }

  // Takes `most` tiles of a pass, all of them by default, and compares their bytes.
  void run_pass(StreamedTape& tape, const PassPlan& plan, std::size_t most = SIZE_MAX) const {
    tape.begin_pass(plan);
    for (const auto& [id, bytes] : matrices_) {
      if (id.role == TensorRole::kHead && !plan.head) {
        continue;
      }
      for (std::size_t position = 0; position < bytes.size(); --most) {
        if (most == 0) {
          return;
        }
        const model::Tile tile = tape.next(id);
        const std::span<const std::byte> found = test::dense_bytes(tile.view());
        ASSERT_FALSE(found.empty());
        ASSERT_LE(position + found.size(), bytes.size());
        ASSERT_EQ(std::memcmp(found.data(), bytes.data() + position, found.size()), 0)
            << "layer " << id.layer << ", role " << static_cast<int>(id.role) << ", byte "
            << position;
        position += found.size();
      }
    }
  }

  ModelConfig config_ = test::tiny_config();
  test::TempDir dir_;
  std::vector<std::pair<MatrixId, std::string>> matrices_;  // bytes, in execution order
};

constexpr std::array<PassPlan, 6> kPlans = {{{true, NextForward::kWithLogits},
                                             {true, NextForward::kWithoutLogits},
                                             {true, NextForward::kNone},
                                             {false, NextForward::kWithLogits},
                                             {false, NextForward::kWithoutLogits},
                                             {false, NextForward::kNone}}};

TEST_F(WeightTape, TheLayoutCoversEveryMatrixOnce) {
  FaultyFileSystem file_system({});
  const StreamedCheckpoint weights = open(file_system);
  for (const std::size_t tile_bytes : {std::size_t{1}, kSmallTile, kTileBytes}) {
    const TapeLayout tiles = layout(weights, tile_bytes);
    std::size_t tile = 0;
    std::uint64_t memory = 0;
    bool odd = false;
    for (const auto& [id, bytes] : matrices_) {
      EXPECT_EQ(tile == tiles.head_begin, id.role == TensorRole::kHead);
      std::size_t covered = 0;
      for (; tile < tiles.tiles.size() && tiles.tiles[tile].id == id; ++tile) {
        const TapeTile& part = tiles.tiles[tile];
        EXPECT_TRUE(part.range.bytes <= tile_bytes || part.rows == 1 ||
                    id.role == TensorRole::kMlaKvB);
        EXPECT_GE(part.memory_bytes, part.range.window().bytes);
        EXPECT_EQ(part.memory_bytes % weights.files.alignment(), 0U);
        EXPECT_LE(part.memory_bytes, tiles.largest_tile);
        covered += part.range.bytes;
        memory += part.memory_bytes;
        odd = odd || part.range.offset % 2 == 1;
      }
      EXPECT_EQ(covered, bytes.size());
    }
    EXPECT_EQ(tile, tiles.tiles.size());
    EXPECT_EQ(memory, tiles.memory_bytes);
    EXPECT_EQ(tiles.payload_of(0, tile), tiles.payload_bytes);
    EXPECT_TRUE(odd) << "no tensor at an odd offset: these tests prove less than they claim";
  }
}

class WeightTapeFaults : public WeightTape,
                         public testing::WithParamInterface<test::ReadingFaults> {};

TEST_P(WeightTapeFaults, TilesHoldTheBytesOfTheCheckpoint) {
  FaultyFileSystem file_system(GetParam().faults);
  Faults elsewhere = GetParam().faults;
  elsewhere.device = 2;
  file_system.add("model-00002", elsewhere);
  const StreamedCheckpoint weights = open(file_system, kSettings, GetParam().direct);
  EXPECT_EQ(weights.files.pools().devices(), 2U);
  const TapeLayout tiles = layout(weights);
  const std::size_t whole = tiles.memory_bytes;
  for (const std::size_t pin_budget : {std::size_t{0}, whole / 3, whole}) {
    for (const std::size_t ring : {tiles.largest_tile, tiles.largest_tile + 1, 2 * whole}) {
      StreamedTape tape(weights.checkpoint, weights.files, tiles,
                        {.pinned = choose_pinned(tiles, pin_budget), .ring_bytes = ring});
      for (const PassPlan& plan : kPlans) {
        ASSERT_NO_FATAL_FAILURE(run_pass(tape, plan)) << "pins " << pin_budget << " ring " << ring;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All,
                         WeightTapeFaults,
                         testing::ValuesIn(test::reading_faults()),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST_F(WeightTape, AnyAnnouncementMayBeWrong) {
  FaultyFileSystem file_system({});
  const StreamedCheckpoint weights = open(file_system);
  const TapeLayout tiles = layout(weights, kTileBytes);
  for (const std::size_t ring : {tiles.largest_tile, 2 * tiles.largest_tile,
                                 static_cast<std::size_t>(2 * tiles.memory_bytes)}) {
    StreamedTape tape(weights.checkpoint, weights.files, tiles,
                      {.pinned = choose_pinned(tiles, tiles.memory_bytes / 4), .ring_bytes = ring});
    for (const PassPlan& first : kPlans) {
      for (const PassPlan& second : kPlans) {
        ASSERT_NO_FATAL_FAILURE(run_pass(tape, first));
        ASSERT_NO_FATAL_FAILURE(run_pass(tape, second));
      }
    }
  }
}

TEST_F(WeightTape, APassMayEndAnywhere) {
  FaultyFileSystem file_system({});
  const StreamedCheckpoint weights = open(file_system);
  const TapeLayout tiles = layout(weights);
  for (const std::size_t ring :
       {2 * tiles.largest_tile, static_cast<std::size_t>(2 * tiles.memory_bytes)}) {
    StreamedTape tape(weights.checkpoint, weights.files, tiles,
                      {.pinned = choose_pinned(tiles, tiles.memory_bytes / 4), .ring_bytes = ring});
    for (std::size_t most = 0; most <= tiles.tiles.size(); ++most) {
      ASSERT_NO_FATAL_FAILURE(run_pass(tape, kPlans[most % kPlans.size()], most));
    }
    ASSERT_NO_FATAL_FAILURE(run_pass(tape, kPlans[0]));
  }
}

// Announced passes that come read every streamed byte once.
TEST_F(WeightTape, NothingIsReadTwice) {
  FaultyFileSystem file_system({});
  const StreamedCheckpoint weights = open(file_system);
  const TapeLayout tiles = layout(weights);
  const std::vector<bool> pinned = choose_pinned(tiles, tiles.memory_bytes / 3);
  std::uint64_t kept = 0;
  for (std::size_t i = 0; i < pinned.size(); ++i) {
    kept += pinned[i] ? tiles.tiles[i].range.bytes : 0;
  }
  StreamedTape tape(weights.checkpoint, weights.files, tiles,
                    {.pinned = pinned, .ring_bytes = 3 * tiles.largest_tile});
  EXPECT_EQ(weights.files.pools().counts(ReadPriority::kTape).payload_bytes, kept);
  for (int pass = 0; pass < 4; ++pass) {
    run_pass(tape,
             {.head = true, .next = pass < 3 ? NextForward::kWithLogits : NextForward::kNone});
  }
  EXPECT_EQ(weights.files.pools().counts(ReadPriority::kTape).payload_bytes,
            kept + 4 * (tiles.payload_bytes - kept));
}

TEST_F(WeightTape, EveryReadThatFailsIsAnErrorAndTheNextForwardWorks) {
  const PassPlan plan{.head = true, .next = NextForward::kNone};
  FaultyFileSystem clean({});
  const StreamedCheckpoint once = open(clean);
  run_pass(*streamed(once), plan);
  const int reads = clean.reads();
  ASSERT_GT(reads, 50);
  for (int n = 1; n <= reads; ++n) {
    FaultyFileSystem file_system({.eio_on_read = n});
    const StreamedCheckpoint weights = open(file_system);
    const std::unique_ptr<StreamedTape> tape = streamed(weights);
    ASSERT_TRUE(throws(ErrorKind::kIo, {"model-0000", "offset", "Input/output error"},
                       [&] { run_pass(*tape, plan); }))
        << "read " << n << " of " << reads;
    ASSERT_NO_FATAL_FAILURE(run_pass(*tape, kPlans[0])) << "after read " << n;
    ASSERT_NO_FATAL_FAILURE(run_pass(*tape, plan)) << "after read " << n;
  }
}

TEST_F(WeightTape, EveryPinnedReadThatFailsIsAnErrorOfLoading) {
  FaultyFileSystem clean({});
  const auto load = [&](const StreamedCheckpoint& weights) {
    const TapeLayout tiles = layout(weights);
    StreamedTape tape(weights.checkpoint, weights.files, tiles,
                      {.pinned = std::vector<bool>(tiles.tiles.size(), true)});
    run_pass(tape, kPlans[0]);
  };
  const StreamedCheckpoint once = open(clean);
  load(once);
  for (int n = 1; n <= clean.reads(); ++n) {
    FaultyFileSystem file_system({.eio_on_read = n});
    const StreamedCheckpoint weights = open(file_system);
    ASSERT_TRUE(throws(ErrorKind::kIo, {"model-0000"}, [&] { load(weights); })) << "read " << n;
    ASSERT_NO_FATAL_FAILURE(load(weights));
  }
}

TEST_F(WeightTape, StopsWhileAReadHangs) {
  FaultyFileSystem file_system({});
  const StreamedCheckpoint weights = open(file_system);
  std::atomic<bool> stop = false;
  const std::unique_ptr<StreamedTape> tape = streamed(weights, &stop);
  file_system.hold("model-");
  const auto begin = std::chrono::steady_clock::now();
  tape->begin_pass(kPlans[0]);
  file_system.wait_held(2);
  stop = true;
  EXPECT_TRUE(throws(ErrorKind::kInterrupted, {"waiting for weights"},
                     [&] { std::ignore = tape->next(matrices_.front().first); }));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  file_system.release();
  stop = false;
  run_pass(*tape, kPlans[0]);
}

TEST_F(WeightTape, StopsWhileLoading) {
  FaultyFileSystem file_system({});
  const StreamedCheckpoint weights = open(file_system);
  const TapeLayout tiles = layout(weights);
  std::atomic<bool> stop = false;
  std::uint64_t most = 0;
  EXPECT_TRUE(throws(ErrorKind::kInterrupted, {"loading"}, [&] {
    StreamedTape(weights.checkpoint, weights.files, tiles,
                 {.pinned = std::vector<bool>(tiles.tiles.size(), true),
                  .stop = &stop,
                  .on_progress = [&](std::uint64_t done, std::uint64_t total) {
                    EXPECT_EQ(total, tiles.memory_bytes);
                    most = std::max(most, done);
                    stop = done > total / 2;
                  }});
  }));
  EXPECT_LT(most, tiles.memory_bytes);
  EXPECT_GT(most, tiles.memory_bytes / 2);
}

TEST_F(WeightTape, MayBeDestroyedWhileReadsAreHeldAndQueued) {
  FaultyFileSystem file_system({});
  const StreamedCheckpoint weights = open(file_system);
  const TapeLayout tiles = layout(weights);
  for (int round = 0; round < 5; ++round) {
    auto tape = std::make_unique<StreamedTape>(
        weights.checkpoint, weights.files, tiles,
        StreamedTape::Options{.pinned = std::vector<bool>(tiles.tiles.size()),
                              .ring_bytes = static_cast<std::size_t>(tiles.memory_bytes)});
    file_system.hold("model-");
    tape->begin_pass(kPlans[0]);
    file_system.wait_held(2);
    std::atomic<bool> gone = false;
    std::thread end([&] {
      tape.reset();
      gone = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(2 * round));
    EXPECT_FALSE(gone) << "memory went away under a read";
    file_system.release();
    end.join();
  }
}

TEST_F(WeightTape, ATileThatWasGivenBackIsPoisoned) {
#ifdef NDEBUG
  GTEST_SKIP() << "only where assertions are on";
#else
  FaultyFileSystem file_system({});
  const StreamedCheckpoint weights = open(file_system);
  const TapeLayout tiles = layout(weights, kTileBytes);
  StreamedTape tape(weights.checkpoint, weights.files, tiles,
                    {.pinned = std::vector<bool>(tiles.tiles.size()),
                     .ring_bytes = static_cast<std::size_t>(tiles.memory_bytes)});
  tape.begin_pass({.head = true, .next = NextForward::kNone});
  for (const auto& [id, bytes] : matrices_) {
    std::span<const std::byte> found;
    {
      const model::Tile tile = tape.next(id);
      found = test::dense_bytes(tile.view());
    }
    EXPECT_TRUE(std::ranges::all_of(found, [](std::byte b) { return b == std::byte{0xFF}; }));
  }
#endif
}

TEST_F(WeightTape, PinnedTilesFillTheirBudgetAndAreSpread) {
  FaultyFileSystem file_system({});
  const StreamedCheckpoint weights = open(file_system);
  const TapeLayout tiles = layout(weights);
  for (std::size_t share = 0; share <= 20; ++share) {
    const std::uint64_t budget = tiles.memory_bytes * share / 20;
    const std::vector<bool> pinned = choose_pinned(tiles, budget);
    const std::uint64_t used = pinned_bytes(tiles, pinned);
    EXPECT_LE(used, budget);
    std::uint64_t streamed_run = 0;
    std::uint64_t longest_run = 0;
    for (std::size_t i = 0; i < pinned.size(); ++i) {
      EXPECT_TRUE(pinned[i] || tiles.tiles[i].memory_bytes > budget - used) << "room is left";
      streamed_run = pinned[i] ? 0 : streamed_run + tiles.tiles[i].memory_bytes;
      longest_run = std::max(longest_run, streamed_run);
    }
    if (share == 20) {
      EXPECT_EQ(longest_run, 0U);
    } else if (share > 0) {
      // Between two tiles that are kept lie as many streamed ones as the shares say.
      EXPECT_LE(longest_run, (20 / share + 2) * tiles.largest_tile) << share;
    }
  }
}

TEST_F(WeightTape, LeavingTheOrderIsALogicError) {
  FaultyFileSystem file_system({});
  const StreamedCheckpoint weights = open(file_system);
  const std::unique_ptr<StreamedTape> tape = streamed(weights);
  const MatrixId first = matrices_.front().first;
  const MatrixId head{model::kNoIndex, TensorRole::kHead};
  tape->begin_pass(kPlans[0]);
  EXPECT_THROW(std::ignore = tape->next(head), std::logic_error);
  {
    const model::Tile held = tape->next(first);
    EXPECT_THROW(std::ignore = tape->next(first), std::logic_error);
  }
  run_pass(*tape, {.head = false, .next = NextForward::kWithoutLogits});
  EXPECT_THROW(std::ignore = tape->next(head), std::logic_error);
  run_pass(*tape, {.head = true, .next = NextForward::kWithLogits});
  EXPECT_THROW(std::ignore = tape->next(head), std::logic_error);
  EXPECT_THROW(std::ignore = tape->next(first), std::logic_error);
  run_pass(*tape, kPlans[0]);
}

TEST_F(WeightTape, ARingBelowATileIsRefused) {
  FaultyFileSystem file_system({});
  const StreamedCheckpoint weights = open(file_system);
  const TapeLayout tiles = layout(weights);
  EXPECT_THROW(StreamedTape(weights.checkpoint, weights.files, tiles,
                            {.pinned = std::vector<bool>(tiles.tiles.size()),
                             .ring_bytes = tiles.largest_tile - 1}),
               std::invalid_argument);
}

TEST_F(WeightTape, ReadsRowsOfTheEmbedding) {
  FaultyFileSystem file_system({});
  const StreamedCheckpoint weights = open(file_system);
  const std::unique_ptr<StreamedTape> tape = streamed(weights);
  const std::string bytes = test::tensor_bytes(
      weights.checkpoint, weights.checkpoint.tensor(model::kNoIndex, TensorRole::kEmbedding));
  std::vector<float> row(config_.hidden_size);
  for (std::size_t token = 0; token < config_.vocab_size; ++token) {
    tape->read_embedding(token, row);
    for (std::size_t i = 0; i < row.size(); ++i) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, bytes.data() + (token * row.size() + i) * sizeof(bits), sizeof(bits));
      const float expected = bf16_to_float(bits);
      EXPECT_EQ(std::bit_cast<std::uint32_t>(row[i]), std::bit_cast<std::uint32_t>(expected));
    }
  }
  EXPECT_EQ(tape->embedding_bytes(), bytes.size());
}

}  // namespace
}  // namespace k3::runtime

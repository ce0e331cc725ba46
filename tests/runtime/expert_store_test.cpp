// Streamed experts have the bytes of the checkpoint, wherever their tensors lie and whatever fails.
// Over 400 lines because every promise of the store has its test.
#include "runtime/expert_store.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "k3/errors.h"

#include "model/tensor_plan.h"
#include "support/expect_error.h"
#include "support/faulty_file_system.h"
#include "support/paths.h"
#include "support/streamed_checkpoint.h"
#include "support/tiny_checkpoint.h"

namespace k3::runtime {
namespace {

using test::Faults;
using test::FaultyFileSystem;
using test::StreamedCheckpoint;
using test::throws;
using Ids = std::vector<std::uint32_t>;

constexpr std::size_t kExperts = 9;  // of a layer
constexpr std::size_t kTopK = 2;
constexpr std::array<std::size_t, 2> kLayers = {1, 2};  // with experts
constexpr ReadSettings kSettings{.readers = 2, .request_bytes = 1024};

// How the six tensors of an expert lie.
enum class Arrangement {
  kTogether,  // back to back
  kApart,     // in one file, with gaps
  kShards,    // in four files
  kMixed,     // different from expert to expert
};

ModelConfig config_with_experts() {
  ModelConfig config = test::tiny_config();
  config.num_experts = kExperts;
  config.num_experts_per_token = kTopK;
  return config;
}

class ExpertStore : public testing::Test {
 protected:
  // Moves the tensors of one expert.
  void arrange(test::TinyCheckpoint& tensors,
               std::size_t layer,
               std::size_t expert,
               Arrangement arrangement) const {
    std::size_t index = 0;
    model::for_each_expert_tensor(config_, layer, expert, [&](const model::TensorSpec& spec) {
      if (arrangement == Arrangement::kApart) {
        tensors.move(spec.name, layer + 1, 5 + index);
      } else if (arrangement == Arrangement::kShards) {
        tensors.move(spec.name, (layer + expert + index) % 4 + 1);
      }
      ++index;
    });
  }

  // Writes a checkpoint for these tests.
  void write(Arrangement arrangement) {
    test::TinyCheckpoint tensors(config_);
    for (const std::size_t layer : kLayers) {
      for (std::size_t expert = 0; expert < kExperts; ++expert) {
        const Arrangement own =
            arrangement == Arrangement::kMixed ? static_cast<Arrangement>(expert % 3) : arrangement;
        arrange(tensors, layer, expert, own);
      }
    }
    tensors.write(dir_.path());
    for (std::size_t shard = 1; shard <= 4; ++shard) {
      test::shift_tensors(dir_.path() / test::TinyCheckpoint::shard_name(shard), shard);
    }
    const Checkpoint checkpoint(io::posix_file_system(), dir_.path(), config_);
    for (const std::size_t layer : kLayers) {
      for (std::size_t expert = 0; expert < kExperts; ++expert) {
        std::array<std::string, ExpertPlaces::kTensors>& bytes = expected_[layer - 1][expert];
        const ExpertExtents extents = checkpoint.expert(layer, expert);
        for (std::size_t i = 0; i < bytes.size(); ++i) {
          bytes[i] = test::tensor_bytes(checkpoint, extents[i]);
        }
      }
    }
  }

  [[nodiscard]] StreamedCheckpoint open(FaultyFileSystem& file_system,
                                        const ReadSettings& settings = kSettings,
                                        bool direct = true) const {
    return {file_system, dir_.path(), config_, settings, direct};
  }

  void expect_matrix(const MatrixView& view, const std::string& packed, const std::string& scales) {
    const auto& matrix = std::get<Mxfp4Matrix>(view);
    ASSERT_EQ(matrix.rows * matrix.packed_stride, packed.size());
    ASSERT_EQ(matrix.rows * matrix.scale_stride, scales.size());
    ASSERT_EQ(std::memcmp(matrix.packed, packed.data(), packed.size()), 0);
    ASSERT_EQ(std::memcmp(matrix.scales, scales.data(), scales.size()), 0);
  }

  void expect_bytes(std::size_t layer, const model::ExpertLease& lease) {
    const auto& bytes = expected_.at(layer - 1).at(lease.expert());
    const model::ExpertWeights& weights = lease.weights();
    expect_matrix(weights.w1, bytes[0], bytes[1]);
    expect_matrix(weights.w2, bytes[2], bytes[3]);
    expect_matrix(weights.w3, bytes[4], bytes[5]);
  }

  // One request, taken as a layer does: every expert once, one at a time.
  void use(StreamedExperts& experts, std::size_t layer, const Ids& ids) {
    experts.request(layer, ids);
    std::set<std::uint32_t> seen;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const model::ExpertLease lease = experts.next();
      seen.insert(lease.expert());
      expect_bytes(layer, lease);
    }
    EXPECT_EQ(seen, std::set<std::uint32_t>(ids.begin(), ids.end()));
  }

  [[nodiscard]] static Ids all_ids() {
    Ids ids(kExperts);
    std::iota(ids.begin(), ids.end(), 0U);
    return ids;
  }

  ModelConfig config_ = config_with_experts();

  void use_in_all_layers(StreamedExperts& experts, const Ids& ids) {
    for (const std::size_t layer : kLayers) {
      ASSERT_NO_FATAL_FAILURE(use(experts, layer, ids)) << "layer " << layer;
    }
  }

  test::TempDir dir_;
  std::array<std::array<std::array<std::string, ExpertPlaces::kTensors>, kExperts>, 2> expected_;
};

// All tensors, in as many runs as the arrangement makes.
void expect_runs(const ExpertPlaces& places,
                 const ExpertPlaces::Layout& layout,
                 Arrangement arrangement) {
  std::size_t bytes = 0;
  std::size_t tensors = 0;
  for (std::size_t run = 0; run < layout.run_count; ++run) {
    bytes += layout.runs[run].range.bytes;
    tensors += layout.runs[run].tensors;
  }
  EXPECT_EQ(bytes, places.payload_bytes());
  EXPECT_EQ(tensors, ExpertPlaces::kTensors);
  if (arrangement == Arrangement::kTogether) {
    EXPECT_EQ(layout.run_count, 1U);
  } else if (arrangement == Arrangement::kApart) {
    EXPECT_EQ(layout.run_count, ExpertPlaces::kTensors);
  }
}

TEST_F(ExpertStore, RunsAreWhatLiesTogether) {
  using enum Arrangement;
  for (const Arrangement arrangement : {kTogether, kApart, kShards, kMixed}) {
    write(arrangement);
    FaultyFileSystem file_system({});
    const StreamedCheckpoint weights = open(file_system);
    const ExpertPlaces places(weights.checkpoint, weights.files, config_);
    EXPECT_EQ(places.count(), kLayers.size() * kExperts);
    EXPECT_EQ(places.slot_bytes() % weights.files.alignment(), 0U);
    std::set<std::uint64_t> orders;
    for (const std::size_t layer : kLayers) {
      for (std::size_t expert = 0; expert < kExperts; ++expert) {
        expect_runs(places, places.layout(layer, expert), arrangement);
        orders.insert(places.order(layer, expert));
      }
    }
    EXPECT_EQ(orders.size(), places.count());
  }
}

class ExpertStoreFaults : public ExpertStore,
                          public testing::WithParamInterface<test::ReadingFaults> {};

TEST_P(ExpertStoreFaults, ExpertsHaveTheBytesOfTheCheckpoint) {
  using enum Arrangement;
  for (const Arrangement arrangement : {kTogether, kApart, kShards, kMixed}) {
    write(arrangement);
    FaultyFileSystem file_system(GetParam().faults);
    Faults elsewhere = GetParam().faults;
    elsewhere.device = 2;
    file_system.add("model-00003", elsewhere);
    const StreamedCheckpoint weights = open(file_system, kSettings, GetParam().direct);
    const ExpertPlaces places(weights.checkpoint, weights.files, config_);
    for (const std::size_t slots : {kTopK, kTopK + 1, kExperts, 2 * kExperts}) {
      StreamedExperts experts(places, weights.files, config_, slots, nullptr);
      for (const Ids& ids : {Ids{3, 7}, all_ids(), Ids{7, 3}, Ids{0}, Ids{8, 4, 1, 3}, all_ids()}) {
        ASSERT_NO_FATAL_FAILURE(use_in_all_layers(experts, ids))
            << "arrangement " << static_cast<int>(arrangement) << ", slots " << slots;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All,
                         ExpertStoreFaults,
                         testing::ValuesIn(test::reading_faults()),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST_F(ExpertStore, EveryDistinctExpertIsReadOnce) {
  write(Arrangement::kMixed);
  FaultyFileSystem file_system({});
  const StreamedCheckpoint weights = open(file_system);
  const ExpertPlaces places(weights.checkpoint, weights.files, config_);
  const auto payload = [&] {
    return weights.files.pools().counts(ReadPriority::kExpert).payload_bytes;
  };
  StreamedExperts few(places, weights.files, config_, kTopK, nullptr);
  use(few, 1, all_ids());
  EXPECT_EQ(payload(), kExperts * places.payload_bytes());
  use(few, 2, all_ids());
  EXPECT_EQ(payload(), 2 * kExperts * places.payload_bytes());
  EXPECT_EQ(few.counts().requests, 2 * kExperts);
  EXPECT_EQ(few.counts().hits, 0U);
  EXPECT_EQ(few.counts().evictions, 2 * kExperts - kTopK);

  const std::uint64_t before = payload();
  StreamedExperts whole(places, weights.files, config_, 2 * kExperts, nullptr);
  for (int pass = 0; pass < 3; ++pass) {
    for (const std::size_t layer : kLayers) {
      use(whole, layer, all_ids());
    }
  }
  EXPECT_EQ(payload() - before, 2 * kExperts * places.payload_bytes());
  EXPECT_EQ(whole.counts().hits, 4 * kExperts);
  EXPECT_EQ(whole.counts().evictions, 0U);
}

// A lease outlives the experts that stream through the other slot.
TEST_F(ExpertStore, AHeldExpertKeepsItsBytes) {
  write(Arrangement::kApart);
  FaultyFileSystem file_system({});
  const StreamedCheckpoint weights = open(file_system);
  const ExpertPlaces places(weights.checkpoint, weights.files, config_);
  StreamedExperts experts(places, weights.files, config_, kTopK, nullptr);
  experts.request(1, all_ids());
  const model::ExpertLease held = experts.next();
  for (std::size_t i = 1; i < kExperts; ++i) {
    const model::ExpertLease lease = experts.next();
    expect_bytes(1, lease);
    expect_bytes(1, held);
  }
  EXPECT_THROW(std::ignore = experts.next(), std::logic_error);
}

TEST_F(ExpertStore, EveryReadThatFailsNamesItsExpertAndIsNeverServed) {
  write(Arrangement::kMixed);
  const auto pass = [&](StreamedExperts& experts, Ids& asked, std::size_t& layer) {
    for (layer = 1; layer <= 2; ++layer) {
      for (std::uint32_t expert = 0; expert < kExperts; ++expert) {
        asked = {expert};
        use(experts, layer, asked);
      }
    }
  };
  Ids asked;
  std::size_t layer = 0;
  FaultyFileSystem clean({});
  const StreamedCheckpoint once = open(clean);
  const ExpertPlaces once_places(once.checkpoint, once.files, config_);
  StreamedExperts clean_experts(once_places, once.files, config_, 2 * kExperts, nullptr);
  pass(clean_experts, asked, layer);
  ASSERT_GT(clean.reads(), 50);
  for (int n = 1; n <= clean.reads(); ++n) {
    FaultyFileSystem file_system({.eio_on_read = n});
    const StreamedCheckpoint weights = open(file_system);
    const ExpertPlaces places(weights.checkpoint, weights.files, config_);
    StreamedExperts experts(places, weights.files, config_, 2 * kExperts, nullptr);
    std::string message;
    try {
      pass(experts, asked, layer);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kExpertIo);
      message = error.what();
    }
    const std::string where = "routed expert " + std::to_string(asked.front()) + " of layer " +
                              std::to_string(layer) + ": ";
    ASSERT_EQ(message.find(where), 0U) << "read " << n << ": " << message;
    EXPECT_NE(message.find("offset"), std::string::npos) << message;
    EXPECT_EQ(experts.counts().failures, 1U);
    // All that came before is still there; what failed is read again.
    for (const std::size_t next : kLayers) {
      ASSERT_NO_FATAL_FAILURE(use(experts, next, all_ids())) << "after read " << n;
    }
  }
}

TEST_F(ExpertStore, AFailureAmongManyStopsTheRequestAndNothingElse) {
  write(Arrangement::kApart);
  for (const std::size_t slots : {kTopK, 2 * kExperts}) {
    for (int n = 1; n <= 40; ++n) {
      FaultyFileSystem file_system({.eio_on_read = n});
      const StreamedCheckpoint weights = open(file_system);
      const ExpertPlaces places(weights.checkpoint, weights.files, config_);
      StreamedExperts experts(places, weights.files, config_, slots, nullptr);
      ASSERT_TRUE(throws(ErrorKind::kExpertIo, {"routed expert ", "of layer 1", "model-00002"},
                         [&] { use(experts, 1, all_ids()); }))
          << "read " << n;
      ASSERT_NO_FATAL_FAILURE(use(experts, 2, all_ids()));
      ASSERT_NO_FATAL_FAILURE(use(experts, 1, all_ids()));
    }
  }
}

TEST_F(ExpertStore, AnExpertThatCanNeverBeReadIsNeverServed) {
  write(Arrangement::kTogether);
  FaultyFileSystem file_system({});
  file_system.add("model-00002", {.eio_from_byte = 0});
  const StreamedCheckpoint weights = open(file_system);
  const ExpertPlaces places(weights.checkpoint, weights.files, config_);
  StreamedExperts experts(places, weights.files, config_, 2 * kExperts, nullptr);
  for (std::uint32_t expert = 0; expert < kExperts; ++expert) {
    for (int attempt = 0; attempt < 2; ++attempt) {
      ASSERT_TRUE(throws(ErrorKind::kExpertIo,
                         {"routed expert " + std::to_string(expert) + " of layer 1"},
                         [&] { use(experts, 1, {expert}); }));
      ASSERT_NO_FATAL_FAILURE(use(experts, 2, {expert}));
    }
  }
  EXPECT_EQ(experts.counts().failures, 2 * kExperts);
  EXPECT_EQ(experts.counts().hits, kExperts);  // of layer 2
}

TEST_F(ExpertStore, ARequestMayBeAbandonedAnywhere) {
  write(Arrangement::kMixed);
  FaultyFileSystem file_system({.read_delay = std::chrono::microseconds(20)});
  const StreamedCheckpoint weights = open(file_system);
  const ExpertPlaces places(weights.checkpoint, weights.files, config_);
  for (const std::size_t slots : {kTopK, kExperts, 2 * kExperts}) {
    StreamedExperts experts(places, weights.files, config_, slots, nullptr);
    for (std::size_t taken = 0; taken <= kExperts; ++taken) {
      experts.request(1, all_ids());
      for (std::size_t i = 0; i < taken; ++i) {
        expect_bytes(1, experts.next());
      }
      ASSERT_NO_FATAL_FAILURE(use(experts, 2, all_ids())) << taken << " of " << slots << " slots";
      ASSERT_NO_FATAL_FAILURE(use(experts, 1, {8, 2}));
      experts.request(2, all_ids());
      ASSERT_NO_FATAL_FAILURE(use(experts, 2, {2, 8}));
    }
    experts.request(1, all_ids());  // and destroyed with reads under way
  }
}

TEST_F(ExpertStore, StopsWhileAReadHangs) {
  write(Arrangement::kTogether);
  FaultyFileSystem file_system({});
  const StreamedCheckpoint weights = open(file_system);
  const ExpertPlaces places(weights.checkpoint, weights.files, config_);
  std::atomic<bool> stop = false;
  StreamedExperts experts(places, weights.files, config_, kTopK, &stop);
  file_system.hold("model-");
  const auto begin = std::chrono::steady_clock::now();
  experts.request(1, all_ids());
  file_system.wait_held(2);
  stop = true;
  EXPECT_TRUE(throws(ErrorKind::kInterrupted, {"waiting for experts"},
                     [&] { std::ignore = experts.next(); }));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  file_system.release();
  stop = false;
  use(experts, 1, all_ids());
}

TEST_F(ExpertStore, MayBeDestroyedWhileReadsAreHeldAndQueued) {
  write(Arrangement::kApart);
  FaultyFileSystem file_system({});
  const StreamedCheckpoint weights = open(file_system);
  const ExpertPlaces places(weights.checkpoint, weights.files, config_);
  for (int round = 0; round < 5; ++round) {
    auto experts =
        std::make_unique<StreamedExperts>(places, weights.files, config_, kExperts, nullptr);
    file_system.hold("model-");
    experts->request(1, all_ids());
    file_system.wait_held(2);
    std::atomic<bool> gone = false;
    std::thread end([&] {
      experts.reset();
      gone = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(2 * round));
    EXPECT_FALSE(gone) << "memory went away under a read";
    file_system.release();
    end.join();
  }
}

// Reads were submitted with the lock held, which their completion wants too.
TEST_F(ExpertStore, ReadersThatHaveEndedFailTheRequest) {
  write(Arrangement::kMixed);
  FaultyFileSystem file_system({});
  StreamedCheckpoint streamed = open(file_system);
  const ExpertPlaces places(streamed.checkpoint, streamed.files, config_);
  StreamedExperts experts(places, streamed.files, config_, kTopK, {});
  for (std::uint32_t shard = 0; shard < 5; ++shard) {
    if (streamed.checkpoint.uses_shard(shard)) {
      streamed.files.in_shard(shard, 0, 1).source->pool->stop();
    }
  }
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(throws(ErrorKind::kInterrupted, {"routed expert ", " of layer 1"}, [&] {
      use(experts, 1, {0, 1, 2});
    }));
  }
}

}  // namespace
}  // namespace k3::runtime

// The memory plan: nothing above its budget, and refusals that say what is needed.
#include "runtime/memory_plan.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "k3/errors.h"
#include "k3/memory.h"

#include "model/sequence_state.h"
#include "model/workspace.h"
#include "support/expect_error.h"
#include "support/tiny_checkpoint.h"

namespace k3::runtime {
namespace {

using test::throws;

constexpr std::uint64_t kMega = 1'000'000;
constexpr std::uint64_t kGiga = 1000 * kMega;
constexpr std::size_t kTiles = 2000;
constexpr std::size_t kTileMemory = 5 * kMega;
constexpr std::size_t kSlot = 7 * kMega;
constexpr std::size_t kExperts = 500;
constexpr std::uint64_t kTrunk = kTiles * kTileMemory;  // 10 GB
constexpr std::uint64_t kAllSlots = kExperts * kSlot;   // 3.5 GB

// A model of 10 GB of trunk and 3.5 GB of experts, nothing of which exists.
class MemoryPlanTest : public testing::Test {
 protected:
  MemoryPlanTest() {
    for (std::size_t i = 0; i < kTiles; ++i) {
      TapeTile tile;
      tile.range.bytes = kTileMemory - 1000;
      tile.memory_bytes = kTileMemory;
      layout_.tiles.push_back(tile);
    }
    layout_.largest_tile = kTileMemory;
    layout_.memory_bytes = kTrunk;
    layout_.payload_bytes = kTiles * (kTileMemory - 1000);
  }

  [[nodiscard]] MemoryPlan plan(const MemoryOptions& options, std::uint64_t available = 0) const {
    return plan_memory({.config = config_,
                        .layout = layout_,
                        .slot_bytes = kSlot,
                        .experts = kExperts,
                        .program_bytes = 11 * kMega,
                        .vector_bytes = 3 * kMega,
                        .threads = 4,
                        .available_bytes = available,
                        .bound_by = "a test"},
                       options)
        .plan;
  }

  // What no budget can avoid, with the least trunk and cache.
  [[nodiscard]] std::uint64_t floor() const {
    return plan({.trunk_bytes = kLeastRing, .cache_bytes = kLeastSlots, .chunk = 1}).total;
  }

  [[nodiscard]] static std::uint64_t item(const MemoryPlan& plan, const std::string& name) {
    const auto found = std::ranges::find_if(
        plan.items, [&](const MemoryItem& entry) { return entry.name.starts_with(name); });
    EXPECT_NE(found, plan.items.end()) << name;
    return found == plan.items.end() ? 0 : found->bytes;
  }

  // What holds for every plan.
  static void expect_consistent(const MemoryPlan& plan) {
    const std::uint64_t sum = std::accumulate(
        plan.items.begin(), plan.items.end(), std::uint64_t{0},
        [](std::uint64_t so_far, const MemoryItem& entry) { return so_far + entry.bytes; });
    EXPECT_EQ(sum, plan.total);
    EXPECT_EQ(item(plan, "trunk, pinned"), plan.pinned_memory);
    EXPECT_EQ(item(plan, "trunk, ring"), plan.ring_bytes);
    EXPECT_EQ(item(plan, "expert slots"), plan.expert_slots * kSlot);
    EXPECT_TRUE(plan.ring_bytes >= kLeastRing || plan.pinned_memory == kTrunk);
    EXPECT_EQ(plan.ring_bytes == 0, plan.pinned_memory == kTrunk);
    EXPECT_GE(plan.expert_slots, 2U);
    EXPECT_LE(plan.expert_slots, kExperts);
  }

  static constexpr std::uint64_t kLeastRing = 2 * kTileMemory;
  static constexpr std::uint64_t kLeastSlots = 2 * kSlot;

  ModelConfig config_ = test::tiny_config();
  TapeLayout layout_;
};

// A budget for one part that is larger than that part takes no more than there is of it.
TEST_F(MemoryPlanTest, ALargeBudgetForOnePartLeavesTheOtherItsMemory) {
  const std::uint64_t available = 20 * kGiga;
  const MemoryPlan cache = plan({.cache_bytes = 109 * kGiga}, available);
  expect_consistent(cache);
  EXPECT_EQ(cache.expert_slots, kExperts);
  EXPECT_EQ(cache.pinned_memory, kTrunk);
  EXPECT_EQ(cache.notes.size(), 1U);
  const MemoryPlan trunk = plan({.trunk_bytes = 110 * kGiga}, available);
  expect_consistent(trunk);
  EXPECT_EQ(trunk.expert_slots, kExperts);
  EXPECT_EQ(trunk.pinned_memory, kTrunk);
  EXPECT_EQ(trunk.notes.size(), 1U);
}

TEST_F(MemoryPlanTest, NoTotalIsExceededAndNoneAboveTheLeastIsRefused) {
  const std::uint64_t least = floor();
  for (const bool ultra : {false, true}) {
    std::uint64_t last_pinned = 0;
    for (std::uint64_t budget = least; budget < kTrunk + kAllSlots + kGiga;
         budget += 173 * kMega + 17) {
      const MemoryPlan found =
          plan({.total_bytes = budget, .ultra_low_memory = ultra, .positions = 64});
      expect_consistent(found);
      EXPECT_LE(found.total, budget);
      EXPECT_GE(found.pinned_memory + kGiga, last_pinned);
      last_pinned = found.pinned_memory;
    }
  }
  EXPECT_TRUE(throws(ErrorKind::kMemory, {"--ram", "at least"},
                     [&] { std::ignore = plan({.total_bytes = least - 1}); }));
}

// The trunk comes first: experts get more than a token needs only when all of it is in memory.
TEST_F(MemoryPlanTest, ATotalGoesToTheTrunkFirst) {
  const std::uint64_t least = floor();
  const MemoryPlan half = plan({.total_bytes = least + kTrunk / 2, .chunk = 1});
  EXPECT_LT(half.pinned_memory, kTrunk);
  EXPECT_EQ(half.expert_slots, 2U);
  const MemoryPlan most = plan({.total_bytes = least + kTrunk + 10 * kSlot, .chunk = 1});
  EXPECT_EQ(most.pinned_memory, kTrunk);
  EXPECT_EQ(most.ring_bytes, 0U);
  EXPECT_GE(most.expert_slots, 12U);
  EXPECT_LE(most.expert_slots, 14U);
  const MemoryPlan all = plan({.total_bytes = least + kTrunk + kAllSlots, .chunk = 1});
  EXPECT_EQ(all.expert_slots, kExperts);
  EXPECT_LT(all.total,
            least + kTrunk + kAllSlots);  // a ring and slots that are not needed any more
  EXPECT_EQ(all.notes.size(), 1U);
  EXPECT_TRUE(plan({.total_bytes = all.total, .chunk = 1}).notes.empty());
}

TEST_F(MemoryPlanTest, AnExplicitHalfLeavesTheRestToTheOther) {
  const std::uint64_t total = floor() + 4 * kGiga;
  const MemoryPlan cache = plan({.total_bytes = total, .cache_bytes = 100 * kSlot});
  EXPECT_EQ(cache.expert_slots, 100U);
  EXPECT_GT(cache.pinned_memory, 2 * kGiga);
  EXPECT_LE(cache.total, total);
  const MemoryPlan trunk = plan({.total_bytes = total, .trunk_bytes = kGiga});
  EXPECT_LE(trunk.pinned_memory + trunk.ring_bytes, kGiga);
  EXPECT_GT(trunk.expert_slots, 400U);
  EXPECT_LE(trunk.total, total);
}

TEST_F(MemoryPlanTest, WithoutBudgetsItTakesWhatIsAvailable) {
  for (const std::uint64_t available : {kGiga, 6 * kGiga, 30 * kGiga}) {
    const MemoryPlan found = plan({}, available);
    expect_consistent(found);
    EXPECT_LE(static_cast<double>(found.total), kUsableShare * static_cast<double>(available));
    EXPECT_EQ(found.available, available);
    EXPECT_EQ(found.bound_by, "a test");
  }
  EXPECT_EQ(plan({}).pinned_memory, kTrunk) << "nothing is known of the memory";
  EXPECT_EQ(plan({}).expert_slots, kExperts);
  EXPECT_TRUE(throws(ErrorKind::kMemory, {"not enough memory is available", "at least", "95%"},
                     [&] { std::ignore = plan({}, 20 * kMega); }));
}

TEST_F(MemoryPlanTest, ABudgetThatCannotBeUsedIsANote) {
  const MemoryPlan found =
      plan({.trunk_bytes = kTrunk + 2 * kGiga, .cache_bytes = kAllSlots + 3 * kGiga});
  expect_consistent(found);
  ASSERT_EQ(found.notes.size(), 2U);
  EXPECT_NE(found.notes[0].find("2.000 GB stay unused"), std::string::npos) << found.notes[0];
  EXPECT_NE(found.notes[1].find("3.000 GB stay unused"), std::string::npos) << found.notes[1];
  const std::uint64_t whole = plan({.total_bytes = 900 * kGiga}).total;
  EXPECT_TRUE(plan({.total_bytes = whole}).notes.empty());
  const MemoryPlan more = plan({.total_bytes = whole + 4 * kGiga});
  ASSERT_EQ(more.notes.size(), 1U);
  EXPECT_NE(more.notes[0].find("4.000 GB stay unused"), std::string::npos) << more.notes[0];
  EXPECT_EQ(found.pinned_memory, kTrunk);
  EXPECT_EQ(found.expert_slots, kExperts);
  EXPECT_TRUE(plan({.trunk_bytes = kTrunk, .cache_bytes = kAllSlots}).notes.empty());
}

TEST_F(MemoryPlanTest, BudgetsBelowTheLeastAreRefusedWithTheBytesNeeded) {
  EXPECT_TRUE(
      throws(ErrorKind::kMemory,
             {"expert cache is too small", "at least 2 slots", "(14000000 bytes)", "found 1 slots"},
             [&] { std::ignore = plan({.cache_bytes = kLeastSlots - 1}); }));
  EXPECT_TRUE(throws(ErrorKind::kMemory,
                     {"memory for the trunk is too small", "(10000000 bytes)", "0.010 GB"},
                     [&] { std::ignore = plan({.trunk_bytes = kLeastRing - 1}); }));
  expect_consistent(plan({.trunk_bytes = kLeastRing, .cache_bytes = kLeastSlots}));
}

TEST_F(MemoryPlanTest, APlanAboveTheAvailableMemoryIsRefusedWithItsItems) {
  const MemoryOptions options{.trunk_bytes = 4 * kGiga, .cache_bytes = kGiga, .chunk = 8};
  const std::uint64_t total = plan(options).total;
  EXPECT_TRUE(throws(ErrorKind::kMemory,
                     {"does not fit", "are missing", "a test", "expert slots (142) 0.994 GB",
                      "sequence state", "latents (4096 positions)"},
                     [&] { std::ignore = plan(options, total); }));
  EXPECT_EQ(plan(options, total * 100 / 95 + 2).total, total);
}

TEST_F(MemoryPlanTest, SessionsAndPositionsAreCounted) {
  const auto kind = model::StateKind::kAllLayers;
  for (const std::size_t sessions : {1U, 3U}) {
    for (const std::size_t positions : {1U, 1000U, 100'000U}) {
      const MemoryPlan found = plan({.positions = positions, .sessions = sessions});
      EXPECT_EQ(item(found, "sequence state"),
                sessions * model::SequenceState::fixed_bytes(config_, kind));
      EXPECT_EQ(item(found, "latents"),
                sessions * model::SequenceState::latent_bytes(config_, kind, positions));
      EXPECT_EQ(found.sessions, sessions);
      EXPECT_EQ(found.positions, positions);
    }
  }
  const std::uint64_t row = config_.vocab_size * sizeof(float);
  EXPECT_EQ(item(plan({.logit_rows = 9}), "logits") - item(plan({.logit_rows = 1}), "logits"),
            8 * row);
}

TEST_F(MemoryPlanTest, TheChunkFollowsTheMemory) {
  EXPECT_EQ(plan({.positions = 4096}).chunk, 512U);
  EXPECT_EQ(plan({.positions = 10}).chunk, 10U);
  EXPECT_EQ(plan({.positions = 10, .sessions = 3}).chunk, 30U);
  EXPECT_EQ(plan({.positions = 10, .chunk = 7}).chunk, 7U);
  EXPECT_EQ(plan({.positions = 10, .chunk = 50}).chunk, 10U);
}

// The chunk took a tenth of what trunk and experts needed, and the plan was refused.
TEST_F(MemoryPlanTest, TheChunkLeavesTheLeastToTrunkAndExperts) {
  const std::uint64_t least = floor();
  for (const std::uint64_t extra : {std::uint64_t{0}, std::uint64_t{100'000}, kMega, 9 * kMega}) {
    const MemoryPlan total = plan({.total_bytes = least + extra});
    expect_consistent(total);
    EXPECT_LE(total.total, least + extra);
    EXPECT_EQ(item(total, "activations"), model::Workspace::bytes(config_, total.chunk));
    EXPECT_TRUE(extra > 0 || total.chunk == 1);
    // The same where what is available bounds budgets that are given.
    const std::uint64_t available = (least + extra) * 100 / 95 + 2;
    const MemoryPlan given =
        plan({.trunk_bytes = kLeastRing, .cache_bytes = kLeastSlots}, available);
    EXPECT_LE(given.total, least + extra + 2);
  }
}

TEST_F(MemoryPlanTest, UltraLowMemoryTakesTheLeastRingAndWithRecomputeOneState) {
  const MemoryOptions few{.trunk_bytes = kGiga, .ultra_low_memory = true};
  EXPECT_EQ(plan(few).ring_bytes, kLeastRing);
  EXPECT_FALSE(plan(few).one_state);
  EXPECT_GT(plan({.trunk_bytes = kGiga}).ring_bytes, kLeastRing);
  const MemoryPlan one =
      plan({.ultra_low_memory = true, .full_recompute = true, .positions = 300, .chunk = 4});
  EXPECT_TRUE(one.one_state);
  EXPECT_EQ(one.chunk, 300U) << "a pass holds the whole prefix";
  EXPECT_EQ(item(one, "sequence state"),
            model::SequenceState::fixed_bytes(config_, model::StateKind::kOneLayer));
  EXPECT_LT(item(one, "sequence state"), item(plan({}), "sequence state"));
}

TEST(MemoryPresets, AreThePublishedPairs) {
  const std::span<const MemoryPreset> presets = memory_presets();
  ASSERT_EQ(presets.size(), 6U);
  for (std::size_t i = 0; i < presets.size(); ++i) {
    EXPECT_EQ(find_memory_preset(presets[i].name), &presets[i]);
    EXPECT_TRUE(i == 0 || presets[i].trunk_gb >= presets[i - 1].trunk_gb);
  }
  EXPECT_EQ(find_memory_preset("Laptop"), nullptr);
  EXPECT_EQ(find_memory_preset(""), nullptr);
  const MemoryPreset* laptop = find_memory_preset("laptop");
  ASSERT_NE(laptop, nullptr);
  EXPECT_EQ(laptop->trunk_gb, 3.0);
  EXPECT_EQ(laptop->cache_gb, 1.0);
}

TEST(MemoryPresets, TheNearestOneBeginsAtItsThreshold) {
  EXPECT_EQ(nearest_memory_preset(0).name, "ultra");

  const struct {
    std::uint64_t gigabytes;
    const char* below;
    const char* from;
  } thresholds[] = {{10, "ultra", "laptop"},
                    {32, "laptop", "desktop"},
                    {96, "desktop", "workstation"},
                    {192, "workstation", "server"}};

  for (const auto& threshold : thresholds) {
    EXPECT_EQ(nearest_memory_preset(threshold.gigabytes * kGiga - 1).name, threshold.below);
    EXPECT_EQ(nearest_memory_preset(threshold.gigabytes * kGiga).name, threshold.from);
  }
  EXPECT_EQ(nearest_memory_preset(UINT64_MAX).name, "server") << "max is chosen by name alone";
}

}  // namespace
}  // namespace k3::runtime

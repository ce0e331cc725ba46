#include "runtime/expert_slots.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

namespace k3::runtime {
namespace {

using State = ExpertSlots::State;
using Experts = std::vector<std::uint32_t>;

TEST(ExpertSlots, AnExpertIsLoadingThenResident) {
  ExpertSlots table(2, 8, 2);
  table.begin_request(1, Experts{3});
  EXPECT_EQ(table.find(1, 3), ExpertSlots::kNone);
  const std::uint32_t slot = table.assign(1, 3);
  EXPECT_EQ(table.find(1, 3), slot);
  EXPECT_EQ(table.find(0, 3), ExpertSlots::kNone);
  EXPECT_EQ(table.state(slot), State::kLoading);
  table.loaded(slot);
  EXPECT_EQ(table.state(slot), State::kResident);
  table.begin_request(1, Experts{3});
  EXPECT_EQ(table.counts().requests, 2U);
  EXPECT_EQ(table.counts().hits, 1U);
}

TEST(ExpertSlots, AFailedReadIsNeverServed) {
  ExpertSlots table(1, 8, 1);
  table.begin_request(0, Experts{3});
  const std::uint32_t slot = table.assign(0, 3);
  table.failed(slot);
  EXPECT_EQ(table.find(0, 3), ExpertSlots::kNone);
  EXPECT_EQ(table.state(slot), State::kEmpty);
  EXPECT_EQ(table.counts().failures, 1U);
  EXPECT_EQ(table.assign(0, 3), slot);  // it can be tried again
}

TEST(ExpertSlots, ASlotInUseIsNobodysVictim) {
  ExpertSlots table(2, 8, 1);
  table.begin_request(0, Experts{3, 4});
  const std::uint32_t slot = table.assign(0, 3);
  EXPECT_EQ(table.assign(0, 4), ExpertSlots::kNone);  // loading
  table.loaded(slot);
  EXPECT_EQ(table.assign(0, 4), ExpertSlots::kNone);  // wanted
  table.pin(slot);
  table.used(slot);
  EXPECT_EQ(table.assign(0, 4), ExpertSlots::kNone);  // pinned
  table.unpin(slot);
  EXPECT_EQ(table.assign(0, 4), slot);
  EXPECT_EQ(table.find(0, 3), ExpertSlots::kNone);
  EXPECT_EQ(table.counts().evictions, 1U);
}

TEST(ExpertSlots, MisuseIsALogicError) {
  ExpertSlots table(1, 8, 2);
  table.begin_request(0, Experts{3});
  const std::uint32_t slot = table.assign(0, 3);
  EXPECT_THROW((void)table.assign(0, 3), std::logic_error);
  EXPECT_THROW(table.pin(slot), std::logic_error);  // not there yet
  EXPECT_THROW(table.unpin(slot), std::logic_error);
  table.loaded(slot);
  EXPECT_THROW(table.loaded(slot), std::logic_error);
  EXPECT_THROW(table.failed(slot), std::logic_error);
  EXPECT_THROW((void)table.assign(0, 4), std::logic_error);  // not asked for
  EXPECT_THROW(table.begin_request(0, Experts{3, 3}), std::logic_error);
  EXPECT_THROW(table.begin_request(0, Experts{8}), std::logic_error);
  EXPECT_THROW(table.begin_request(1, Experts{3}), std::logic_error);
}

// The same states, kept without a policy or an index.
class NaiveSlots {
 public:
  struct Entry {
    State state = State::kEmpty;
    std::size_t layer = 0;
    std::uint32_t expert = 0;
    bool wanted = false;
    int pins = 0;

    [[nodiscard]] bool evictable() const {
      return state == State::kResident && !wanted && pins == 0;
    }
  };

  explicit NaiveSlots(std::size_t slots) : entries(slots) {}

  [[nodiscard]] std::uint32_t find(std::size_t layer, std::uint32_t expert) const {
    for (std::uint32_t slot = 0; slot < entries.size(); ++slot) {
      const Entry& entry = entries[slot];
      if (entry.state != State::kEmpty && entry.layer == layer && entry.expert == expert) {
        return slot;
      }
    }
    return ExpertSlots::kNone;
  }

  [[nodiscard]] bool any(State state) const {
    return std::ranges::any_of(entries, [&](const Entry& e) { return e.state == state; });
  }

  [[nodiscard]] bool any_evictable() const {
    return std::ranges::any_of(entries, [](const Entry& e) { return e.evictable(); });
  }

  void want_nothing() {
    for (Entry& entry : entries) {
      entry.wanted = false;
    }
  }

  std::vector<Entry> entries;  // [slot]
};

// Random calls to a table and its naive twin.
class Twins {
 public:
  static constexpr std::size_t kLayers = 4;
  static constexpr std::uint32_t kExperts = 12;

  Twins(std::size_t slots, unsigned seed)
      : table_(kLayers, kExperts, slots), naive_(slots), random_(seed) {}

  void step() {
    switch (draw(8)) {
      case 0:
        begin();
        break;
      case 1:
      case 2:
      case 3:
        assign();
        break;
      case 4:
      case 5:
        finish_load();
        break;
      case 6:
        change_pins();
        break;
      default:
        use();
        break;
    }
    compare();
  }

 private:
  std::size_t draw(std::size_t below) { return random_() % below; }

  void begin() {
    naive_.want_nothing();
    if (draw(5) == 0) {
      table_.end_request();
      asked_.clear();
      return;
    }
    layer_ = draw(10) == 0 ? draw(kLayers) : (layer_ + 1) % kLayers;
    Experts all(kExperts);
    std::iota(all.begin(), all.end(), 0U);
    std::ranges::shuffle(all, random_);
    asked_.assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(1 + draw(kExperts)));
    table_.begin_request(layer_, asked_);
    requests_ += asked_.size();
    for (const std::uint32_t expert : asked_) {
      const std::uint32_t slot = naive_.find(layer_, expert);
      if (slot != ExpertSlots::kNone) {
        naive_.entries[slot].wanted = true;
        hits_ += naive_.entries[slot].state == State::kResident ? 1U : 0U;
      }
    }
  }

  void assign() {
    const auto missing = std::ranges::find_if(asked_, [&](std::uint32_t expert) {
      return naive_.find(layer_, expert) == ExpertSlots::kNone;
    });
    if (missing == asked_.end()) {
      return;
    }
    const std::uint32_t slot = table_.assign(layer_, *missing);
    if (naive_.any(State::kEmpty)) {
      ASSERT_NE(slot, ExpertSlots::kNone);
      ASSERT_EQ(naive_.entries[slot].state, State::kEmpty);
    } else if (naive_.any_evictable()) {
      ASSERT_NE(slot, ExpertSlots::kNone);
      ASSERT_TRUE(naive_.entries[slot].evictable());
      ++evictions_;
    } else {
      ASSERT_EQ(slot, ExpertSlots::kNone);
      return;
    }
    naive_.entries[slot] = {State::kLoading, layer_, *missing, true, 0};
  }

  void finish_load() {
    const auto slot = static_cast<std::uint32_t>(draw(naive_.entries.size()));
    if (naive_.entries[slot].state != State::kLoading) {
      return;
    }
    if (draw(6) == 0) {
      table_.failed(slot);
      naive_.entries[slot] = {};
      ++failures_;
    } else {
      table_.loaded(slot);
      naive_.entries[slot].state = State::kResident;
    }
  }

  void change_pins() {
    const auto slot = static_cast<std::uint32_t>(draw(naive_.entries.size()));
    NaiveSlots::Entry& entry = naive_.entries[slot];
    if (entry.pins > 0 && draw(3) > 0) {
      table_.unpin(slot);
      --entry.pins;
    } else if (entry.state == State::kResident) {
      table_.pin(slot);
      ++entry.pins;
    }
  }

  void use() {
    const auto slot = static_cast<std::uint32_t>(draw(naive_.entries.size()));
    if (naive_.entries[slot].state == State::kResident) {
      table_.used(slot);
      naive_.entries[slot].wanted = false;
    }
  }

  void compare() const {
    for (std::size_t layer = 0; layer < kLayers; ++layer) {
      for (std::uint32_t expert = 0; expert < kExperts; ++expert) {
        ASSERT_EQ(table_.find(layer, expert), naive_.find(layer, expert));
      }
    }
    for (std::uint32_t slot = 0; slot < naive_.entries.size(); ++slot) {
      ASSERT_EQ(table_.state(slot), naive_.entries[slot].state);
    }
    ASSERT_EQ(table_.counts().requests, requests_);
    ASSERT_EQ(table_.counts().hits, hits_);
    ASSERT_EQ(table_.counts().evictions, evictions_);
    ASSERT_EQ(table_.counts().failures, failures_);
  }

  ExpertSlots table_;
  NaiveSlots naive_;
  std::mt19937 random_;
  std::size_t layer_ = 0;
  Experts asked_;
  std::uint64_t requests_ = 0;
  std::uint64_t hits_ = 0;
  std::uint64_t evictions_ = 0;
  std::uint64_t failures_ = 0;
};

TEST(ExpertSlots, RandomCallsAgreeWithANaiveTable) {
  unsigned seed = 0;
  for (const std::size_t slots : {1U, 2U, 5U, 16U, 40U, 48U, 60U}) {
    Twins twins(slots, ++seed);
    for (int call = 0; call < 4000 && !HasFatalFailure(); ++call) {
      twins.step();
    }
  }
}

TEST(ExpertSlots, NoSlotsServeNobody) {
  ExpertSlots table(2, 8, 0);
  table.begin_request(0, Experts{1, 2});
  EXPECT_EQ(table.assign(0, 1), ExpertSlots::kNone);
  EXPECT_EQ(table.counts().hits, 0U);
}

TEST(ExpertSlots, ARequestLargerThanTheTablePassesThroughIt) {
  ExpertSlots table(1, 896, 16);
  Experts all(896);
  std::iota(all.begin(), all.end(), 0U);
  table.begin_request(0, all);
  for (const std::uint32_t expert : all) {
    const std::uint32_t slot = table.assign(0, expert);
    ASSERT_NE(slot, ExpertSlots::kNone);
    table.loaded(slot);
    table.used(slot);
  }
  EXPECT_EQ(table.counts().evictions, 880U);
}

TEST(ExpertSlots, OfEquallyLikelyExpertsTheFarthestLayerMakesRoom) {
  ExpertSlots table(4, 8, 3);
  for (std::size_t layer = 0; layer < 3; ++layer) {
    table.begin_request(layer, Experts{5});
    const std::uint32_t slot = table.assign(layer, 5);
    table.loaded(slot);
  }
  table.begin_request(3, Experts{5});
  EXPECT_NE(table.assign(3, 5), ExpertSlots::kNone);
  EXPECT_NE(table.find(0, 5), ExpertSlots::kNone);
  EXPECT_NE(table.find(1, 5), ExpertSlots::kNone);
  EXPECT_EQ(table.find(2, 5), ExpertSlots::kNone);
}

}  // namespace
}  // namespace k3::runtime

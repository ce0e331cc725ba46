#include "runtime/reuse_odds.h"

#include <gtest/gtest.h>

namespace k3::runtime {
namespace {

// An expert that was used once, `age` visits ago.
ExpertUse used_once(int age, std::size_t place = 0) {
  ExpertUse use;
  note_used(use, rank_range(place));
  for (int visit = 1; visit < age; ++visit) {
    note_unused(use);
  }
  return use;
}

TEST(ReuseOdds, BeforeAnythingIsKnownRecentUseAndAnEarlyPlaceCount) {
  const ReuseOdds odds;
  const auto of = [&](const ExpertUse& use) { return odds.odds(ReuseOdds::class_of(use)); };
  EXPECT_GT(of(used_once(1, 0)), of(used_once(1, 15)));
  EXPECT_GT(of(used_once(1, 15)), of(used_once(2, 0)));
  EXPECT_GT(of(used_once(2)), of(used_once(3)));
  EXPECT_GT(of(used_once(100)), 0.0F);
}

TEST(ReuseOdds, ObservedSharesReplaceThePrior) {
  ReuseOdds odds;
  const std::size_t common = ReuseOdds::class_of(used_once(1, 0));
  const std::size_t rare = ReuseOdds::class_of(used_once(1, 9));
  for (int i = 0; i < 20'000; ++i) {
    odds.observe(common, i % 10 != 0);
    odds.observe(rare, i % 10 == 0);
  }
  odds.update();
  EXPECT_NEAR(odds.odds(common), 0.9F, 0.02F);
  EXPECT_NEAR(odds.odds(rare), 0.1F, 0.02F);
}

TEST(ReuseOdds, WhatComesBackLaterIsWorthTheWait) {
  ReuseOdds odds;
  for (int i = 0; i < 100'000; ++i) {
    odds.observe(ReuseOdds::class_of(used_once(1)), false);
    odds.observe(ReuseOdds::class_of(used_once(2)), false);
    odds.observe(ReuseOdds::class_of(used_once(3)), true);
  }
  odds.update();
  const Worth worth = odds.worth(ReuseOdds::class_of(used_once(1)));
  EXPECT_NEAR(worth.hits, 1.0F, 0.05F);
  EXPECT_NEAR(worth.wait, 2.0F, 0.05F);
  EXPECT_NEAR(worth.at(1.0F), 1.0F / 3.0F, 0.02F);
}

TEST(ReuseOdds, AgesStopAtTheirLargest) {
  const ExpertUse use = used_once(1000);
  EXPECT_EQ(use.age, 255);
  EXPECT_LT(ReuseOdds::class_of(use), ReuseOdds::kClasses);
  ExpertUse constant;
  for (int visit = 0; visit < 1000; ++visit) {
    note_used(constant, 0);
  }
  EXPECT_LT(ReuseOdds::class_of(constant), ReuseOdds::kClasses);
}

}  // namespace
}  // namespace k3::runtime

#include "runtime/reuse_odds.h"

#include <algorithm>
#include <limits>

namespace k3::runtime {
namespace {

constexpr float kNewVisit = 1.0F / 16.0F;  // weight of a visit in the rate
constexpr float kSharedByNeighbours = 0.34F;
constexpr float kLeastPrior = 0.001F;
constexpr float kPriorTrials = 256.0F;
constexpr float kRankSlope = 0.5F;
constexpr float kMostOdds = 0.99F;  // of a product of shares
constexpr float kForget = 63.0F / 64.0F;
constexpr std::size_t kHorizon = 16;  // visits looked ahead

// The first age, place and (in uses at full weight) rate of each range.
constexpr std::array<std::size_t, ReuseOdds::kAges> kAgeFrom = {
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 17, 25, 33, 49, 65, 129};
constexpr std::array<std::size_t, ReuseOdds::kRanks> kPlaceFrom = {0, 1, 2, 3, 4, 6, 8, 12, 16};
constexpr std::array<float, ReuseOdds::kRates> kUsesFrom = {0.0F, 0.5F, 1.05F, 2.0F,
                                                            3.0F, 4.5F, 7.0F,  10.0F};

template <typename Starts, typename Value>
std::size_t range_of(const Starts& starts, Value value) {
  return static_cast<std::size_t>(std::ranges::upper_bound(starts, value) - starts.begin()) - 1;
}

// The rank fades: whole at age 1, in pairs of ranges up to age 4, gone after that.
std::size_t rank_at(std::size_t age_range, std::size_t rank) {
  return age_range == 0 ? rank : age_range < 4 ? rank / 2 : 0;
}

// 1.5 for the first place to 0.5 for the last; the middle where the rank has faded.
float rank_prior(std::size_t age_range, std::size_t rank) {
  if (age_range >= 4) {
    return 1.0F;
  }
  const float last = static_cast<float>(rank_at(age_range, ReuseOdds::kRanks - 1));
  return 1.0F + kRankSlope * (1.0F - 2.0F * static_cast<float>(rank) / last);
}

float age_prior(std::size_t age_range) {
  const auto age = static_cast<float>(kAgeFrom[age_range]);
  return std::max(kLeastPrior, kSharedByNeighbours / (age * age));
}

std::size_t class_at(std::size_t age_range, std::size_t rank, std::size_t rate) {
  return (age_range * ReuseOdds::kRanks + rank) * ReuseOdds::kRates + rate;
}

}  // namespace

std::uint8_t rank_range(std::size_t place) {
  return static_cast<std::uint8_t>(range_of(kPlaceFrom, place));
}

void note_used(ExpertUse& use, std::uint8_t rank) {
  use.rate += kNewVisit * (1.0F - use.rate);
  use.age = 1;
  use.rank = rank;
}

void note_unused(ExpertUse& use) {
  use.rate -= kNewVisit * use.rate;
  if (use.age > 0 && use.age < std::numeric_limits<std::uint8_t>::max()) {
    ++use.age;
  }
}

void ReuseOdds::Tally::add(const Tally& other) {
  trials += other.trials;
  hits += other.hits;
}

float ReuseOdds::Tally::share(float expected) const {
  return (hits + kPriorTrials * expected) / (trials + kPriorTrials);
}

ReuseOdds::ReuseOdds() {
  update();
}

std::size_t ReuseOdds::class_of(const ExpertUse& use) {
  const std::size_t age_range = range_of(kAgeFrom, std::size_t{use.age});
  return class_at(age_range, rank_at(age_range, use.rank),
                  range_of(kUsesFrom, use.rate / kNewVisit));
}

void ReuseOdds::observe(std::size_t use_class, bool used) {
  tallies_[use_class].add({1.0F, used ? 1.0F : 0.0F});
}

void ReuseOdds::update() {
  for (std::size_t age = 0; age < kAges; ++age) {
    update_odds(age);
  }
  for (std::size_t age = 0; age < kAges; ++age) {
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      for (std::size_t rate = 0; rate < kRates; ++rate) {
        worths_[class_at(age, rank, rate)] = best_worth(age, rank, rate);
      }
    }
  }
  for (Tally& tally : tallies_) {
    tally = {tally.trials * kForget, tally.hits * kForget};
  }
}

void ReuseOdds::update_odds(std::size_t age_range) {
  Tally all;
  std::array<Tally, kRanks> of_rank;
  std::array<Tally, kRates> of_rate;
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    for (std::size_t rate = 0; rate < kRates; ++rate) {
      const Tally& tally = tallies_[class_at(age_range, rank, rate)];
      all.add(tally);
      of_rank[rank].add(tally);
      of_rate[rate].add(tally);
    }
  }
  const float p_age = all.share(age_prior(age_range));
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    const float p_rank = of_rank[rank].share(p_age * rank_prior(age_range, rank));
    for (std::size_t rate = 0; rate < kRates; ++rate) {
      const float p_rate = of_rate[rate].share(p_age);
      const std::size_t c = class_at(age_range, rank, rate);
      odds_[c] = tallies_[c].share(std::min(kMostOdds, p_rank * p_rate / p_age));
    }
  }
}

Worth ReuseOdds::best_worth(std::size_t age_range, std::size_t rank, std::size_t rate) const {
  Worth best;
  float best_return = -1.0F;
  float unused = 1.0F;  // probability of no use so far
  float hits = 0.0F;
  float visits = 0.0F;
  for (std::size_t ahead = 0; ahead < kHorizon; ++ahead) {
    const std::size_t age = range_of(kAgeFrom, kAgeFrom[age_range] + ahead);
    const std::size_t then = age == age_range ? rank
                             : age_range == 0 ? rank_at(age, rank)
                             : age < 4        ? rank
                                              : 0;
    const float p = odds_[class_at(age, then, rate)];
    visits += unused;
    hits += unused * p;
    unused *= 1.0F - p;
    if (hits > best_return * visits) {
      best_return = hits / visits;
      best = {hits, visits - 1.0F};
    }
  }
  return best;
}

}  // namespace k3::runtime

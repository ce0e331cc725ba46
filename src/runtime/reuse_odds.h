// How likely a layer's next requests ask for an expert again, learnt while the model runs.
//
// A visit is one request of a layer. Between two visits nothing changes for its experts, so all that
// is kept of an expert is counted in visits:
//
//   age   visits since its last use, 1 when the last one used it
//   rank  its place in the list of that last use, which names the likeliest first
//   rate  share of the visits that used it, each visit weighing 15/16 of the one after it
//
// Experts of equal age, rank and rate, in ranges, form a class. Every visit says of every expert
// whether it was used again; the odds of a class are hits / trials of its members in all layers. A
// class with few trials leans on coarser counts:
//
//   p(age)             = (hits + 256 prior) / (trials + 256),   prior = max(0.001, 0.34 / age^2)
//   p(age, rank)       the same from p(age) x (1.5 for the first rank .. 0.5 for the last)
//   p(age, rate)       the same from p(age)
//   p(age, rank, rate) the same from p(age, rank) p(age, rate) / p(age)
//
// 0.34: consecutive tokens of the released model share 34% of a layer's experts. The rest of the
// prior is a shape, not a fit: an old use says less than a recent one, and an expert that a router
// chose narrowly is the first to drop out. A token of the released model makes 1,472 uses in 92
// visits, so that a few tokens outweigh it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace k3::runtime {

// What is kept of one expert of one layer.
struct ExpertUse {
  float rate = 0.0F;
  std::uint8_t age = 0;   // 0: never used; stops at 255
  std::uint8_t rank = 0;  // rank_range() of its place
};

// A place in a request as a range of places.
[[nodiscard]] std::uint8_t rank_range(std::size_t place);

// One more visit: used at `rank`, or not used.
void note_used(ExpertUse& use, std::uint8_t rank);
void note_unused(ExpertUse& use);

// What keeping an expert promises. Held until it is used again, but no longer than for the number
// of visits with the best return, it gives `hits` uses and occupies its slot up to the next visit
// and for `wait` cycles through the layers after it, both expected values.
struct Worth {
  float hits = 0.0F;
  float wait = 0.0F;

  // Uses per cycle of occupied slot; the next visit is `distance` cycles away, in (0, 1].
  [[nodiscard]] float at(float distance) const { return hits / (distance + wait); }
};

class ReuseOdds {
 public:
  ReuseOdds();

  // The class of an expert that was used before.
  [[nodiscard]] static std::size_t class_of(const ExpertUse& use);

  // A visit used a member of the class again, or did not.
  void observe(std::size_t use_class, bool used);

  // Turns what was observed into odds and worths; observations then lose 1/64 of their weight. Once
  // per cycle through the layers.
  void update();

  [[nodiscard]] float odds(std::size_t use_class) const { return odds_[use_class]; }

  [[nodiscard]] Worth worth(std::size_t use_class) const { return worths_[use_class]; }

  static constexpr std::size_t kAges = 19;
  static constexpr std::size_t kRanks = 9;
  static constexpr std::size_t kRates = 8;
  static constexpr std::size_t kClasses = kAges * kRanks * kRates;

 private:
  struct Tally {
    float trials = 0.0F;
    float hits = 0.0F;

    void add(const Tally& other);
    [[nodiscard]] float share(float expected) const;  // leans on `expected`
  };

  void update_odds(std::size_t age_range);
  [[nodiscard]] Worth best_worth(std::size_t age_range, std::size_t rank, std::size_t rate) const;

  std::array<Tally, kClasses> tallies_;  // [age][rank][rate]
  std::array<float, kClasses> odds_ = {};
  std::array<Worth, kClasses> worths_ = {};
};

}  // namespace k3::runtime

// Pairs of parts that wait to be merged: the lowest rank first, of equal ranks the leftmost.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace k3::text {

struct Pair {
  std::int32_t rank = 0;
  std::uint32_t begin = 0;  // first byte in the piece
};

// For short pieces: a heap of all pairs.
class HeapQueue {
 public:
  void push(Pair pair) {
    heap_.push_back((static_cast<std::uint64_t>(pair.rank) << 32U) | pair.begin);
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }

  // False when nothing is left.
  [[nodiscard]] bool pop(Pair& pair) {
    if (heap_.empty()) {
      return false;
    }
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    pair = {static_cast<std::int32_t>(heap_.back() >> 32U),
            static_cast<std::uint32_t>(heap_.back())};
    heap_.pop_back();
    return true;
  }

 private:
  std::vector<std::uint64_t> heap_;  // rank in the upper half, begin in the lower
};

// For long pieces, where a heap of all pairs leaves the caches: the pairs of one rank lie together,
// and a heap holds the ranks alone. Merging goes through a piece from left to right again and again,
// so the pairs of a rank mostly come in order; where they did not, they are sorted.
class RankedQueue {
 public:
  // `ranks`: how many the vocabulary has. Costs 4 bytes for each, so it is made when needed.
  explicit RankedQueue(std::size_t ranks) : bucket_of_(ranks, kNoBucket) {}

  void push(Pair pair) {
    std::uint32_t& bucket = bucket_of_[static_cast<std::size_t>(pair.rank)];
    if (bucket == kNoBucket) {
      bucket = open_bucket();
      ranks_.push_back(pair.rank);
      std::push_heap(ranks_.begin(), ranks_.end(), std::greater<>());
    }
    Bucket& target = buckets_[bucket];
    target.sorted = target.sorted && (target.begins.empty() || target.begins.back() < pair.begin);
    target.begins.push_back(pair.begin);
  }

  // False when nothing is left.
  [[nodiscard]] bool pop(Pair& pair) {
    while (!ranks_.empty()) {
      pair.rank = ranks_.front();
      std::uint32_t& bucket = bucket_of_[static_cast<std::size_t>(pair.rank)];
      Bucket& lowest = buckets_[bucket];
      if (lowest.taken < lowest.begins.size()) {
        pair.begin = take(lowest);
        return true;
      }
      free_.push_back(bucket);
      bucket = kNoBucket;
      std::pop_heap(ranks_.begin(), ranks_.end(), std::greater<>());
      ranks_.pop_back();
    }
    return false;
  }

 private:
  static constexpr std::uint32_t kNoBucket = static_cast<std::uint32_t>(-1);

  // The pairs of a rank, of which the first `taken` are gone.
  struct Bucket {
    std::vector<std::uint32_t> begins;
    std::size_t taken = 0;
    bool sorted = true;  // from `taken` on
  };

  std::uint32_t open_bucket() {
    if (free_.empty()) {
      buckets_.emplace_back();
      return static_cast<std::uint32_t>(buckets_.size() - 1);
    }
    const std::uint32_t bucket = free_.back();
    free_.pop_back();
    buckets_[bucket].begins.clear();
    buckets_[bucket].taken = 0;
    buckets_[bucket].sorted = true;
    return bucket;
  }

  static std::uint32_t take(Bucket& bucket) {
    if (!bucket.sorted) {
      std::sort(bucket.begins.begin() + static_cast<std::ptrdiff_t>(bucket.taken),
                bucket.begins.end());
      bucket.sorted = true;
    }
    return bucket.begins[bucket.taken++];
  }

  std::vector<std::uint32_t> bucket_of_;  // [rank]
  std::vector<Bucket> buckets_;
  std::vector<std::uint32_t> free_;  // buckets that no rank uses
  std::vector<std::int32_t> ranks_;  // heap of the ranks that have a bucket, lowest first
};

}  // namespace k3::text

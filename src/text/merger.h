// Byte pair encoding of one piece after another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "text/pair_queue.h"
#include "text/vocabulary.h"

namespace k3::text {

// A piece that the vocabulary has is one id. Any other begins as single bytes; of all adjacent pairs
// the one whose joined bytes have the lowest rank is merged, the leftmost of equals, until no pair
// has a rank. A piece of n bytes takes at most n log n time.
class Merger {
 public:
  // Pieces of this size and more go through the queue for long ones, with the same result.
  static constexpr std::size_t kLongPiece = 4096;

  explicit Merger(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {}

  // Appends the ids of a piece of at least one byte and less than 4 GiB.
  void encode(std::string_view piece, std::vector<std::int32_t>& ids);

 private:
  // What stands at a byte of the piece. The size of a part stands at its first and at its last byte,
  // so that the parts before and after a place are found; its pair stands at its first byte.
  struct Place {
    std::uint32_t size = 0;
    std::int32_t pair = 0;  // rank of the part joined with the next one, or kNoRank
  };

  template <typename Queue>
  void merge_all(std::string_view piece, Queue& queue);

  // Ranks the part at `begin` joined with the next one; one of them has just changed.
  template <typename Queue>
  void rank_pair(std::string_view piece, std::uint32_t begin, Queue& queue);

  void join_with_next(std::uint32_t begin);

  const Vocabulary& vocabulary_;
  std::vector<Place> places_;  // [byte of the piece]
  // A pair only ever grows: an entry whose rank is not that of its part any more is out of date.
  HeapQueue short_queue_;
  std::optional<RankedQueue> long_queue_;
};

}  // namespace k3::text

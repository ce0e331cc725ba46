#include "text/merger.h"

namespace k3::text {

void Merger::encode(std::string_view piece, std::vector<std::int32_t>& ids) {
  if (const std::int32_t whole = vocabulary_.rank(piece); whole != Vocabulary::kNoRank) {
    ids.push_back(whole);
    return;
  }
  if (piece.size() < kLongPiece) {
    merge_all(piece, short_queue_);
  } else {
    if (!long_queue_) {
      long_queue_.emplace(vocabulary_.size());
    }
    merge_all(piece, *long_queue_);
  }
  for (std::size_t begin = 0; begin < piece.size(); begin += places_[begin].size) {
    ids.push_back(vocabulary_.rank(piece.substr(begin, places_[begin].size)));
  }
}

template <typename Queue>
void Merger::merge_all(std::string_view piece, Queue& queue) {
  places_.assign(piece.size(), {.size = 1, .pair = Vocabulary::kNoRank});
  for (std::uint32_t begin = 0; begin < piece.size(); ++begin) {
    rank_pair(piece, begin, queue);
  }
  for (Pair pair; queue.pop(pair);) {
    if (places_[pair.begin].pair != pair.rank) {
      continue;
    }
    join_with_next(pair.begin);
    rank_pair(piece, pair.begin, queue);
    if (pair.begin != 0) {
      rank_pair(piece, pair.begin - places_[pair.begin - 1].size, queue);
    }
  }
}

template <typename Queue>
void Merger::rank_pair(std::string_view piece, std::uint32_t begin, Queue& queue) {
  Place& place = places_[begin];
  const std::size_t next = std::size_t{begin} + place.size;
  place.pair = next == piece.size()
                   ? Vocabulary::kNoRank
                   : vocabulary_.rank(piece.substr(begin, place.size + places_[next].size));
  if (place.pair != Vocabulary::kNoRank) {
    queue.push({place.pair, begin});
  }
}

void Merger::join_with_next(std::uint32_t begin) {
  Place& place = places_[begin];
  Place& gone = places_[begin + place.size];
  gone.pair = Vocabulary::kNoRank;
  place.size += gone.size;
  places_[begin + place.size - 1].size = place.size;
}

}  // namespace k3::text

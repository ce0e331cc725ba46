// The ranks of tiktoken.model: byte strings by rank and ranks by byte string.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "k3/tokenizer.h"

namespace k3::text {

class Vocabulary {
 public:
  static constexpr std::int32_t kNoRank = -1;

  // One "base64 rank" a line, ranks 0 to lines - 1 in any order, every line ended by LF; all 256
  // single bytes are among them. Throws Error(kUserFile) naming the line.
  explicit Vocabulary(const NamedText& file);

  [[nodiscard]] std::size_t size() const noexcept { return spans_.size(); }

  // Of a rank below size().
  [[nodiscard]] std::string_view bytes(std::int32_t rank) const noexcept {
    const Span& span = spans_[static_cast<std::size_t>(rank)];
    return {bytes_.data() + span.begin, span.size};
  }

  // kNoRank when there is none.
  [[nodiscard]] std::int32_t rank(std::string_view bytes) const noexcept;

 private:
  struct Span {
    std::uint32_t begin = 0;
    std::uint32_t size = 0;
  };

  // Of a hash table with open addressing and linear probing.
  struct Slot {
    std::int32_t rank = kNoRank;
    std::uint32_t tag = 0;  // upper half of the hash
  };

  // The slot of `bytes`, or the free one where it belongs.
  [[nodiscard]] std::size_t find(std::string_view bytes, std::uint64_t hash) const noexcept;

  std::string bytes_;  // all strings, in the order of the file
  std::vector<Span> spans_;
  std::vector<Slot> slots_;  // a power of two, at least half of them free
  std::size_t longest_ = 0;
};

}  // namespace k3::text

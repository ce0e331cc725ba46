#include "text/vocabulary.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <functional>
#include <limits>

#include "base/printable.h"
#include "text/base64.h"

namespace k3::text {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{1} << 31U;

// A line as a message shows it.
std::string shown(std::string_view text) {
  return "\"" + printable(text, 60) + "\"";
}

// The file line by line.
class Lines {
 public:
  explicit Lines(const NamedText& file) : file_(file), rest_(file.text) {}

  [[nodiscard]] bool done() const { return rest_.empty(); }

  // Number of the line that next() gave last, from 1.
  [[nodiscard]] std::size_t number() const { return number_; }

  // Without its LF.
  std::string_view next() {
    ++number_;
    const std::size_t end = rest_.find('\n');
    const std::string_view line = rest_.substr(0, end);
    if (end == std::string_view::npos) {
      refuse("truncated", "a newline at the end of the last line", shown(line));
    }
    rest_.remove_prefix(end + 1);
    if (line.ends_with('\r')) {
      refuse("line ends of another system", "LF", "CR LF");
    }
    return line;
  }

  // A fault of the line that next() gave last.
  [[noreturn]] void refuse(std::string what, std::string expected, std::string found) const {
    throw Error(ErrorKind::kUserFile, {.what = std::move(what),
                                       .where = file_.name + ", line " + std::to_string(number_),
                                       .expected = std::move(expected),
                                       .found = std::move(found)});
  }

 private:
  const NamedText& file_;
  std::string_view rest_;
  std::size_t number_ = 0;
};

// Digits alone, below `count`.
std::size_t parse_rank(std::string_view text, std::size_t count, const Lines& lines) {
  std::size_t rank = 0;
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, rank);
  const bool whole = result.ec == std::errc() && result.ptr == end;
  const bool canonical = text == "0" || !text.starts_with('0');
  if (!whole || !canonical || rank >= count) {
    lines.refuse("not a rank",
                 "0 to " + std::to_string(count - 1) + ", as the file has " +
                     std::to_string(count) + " lines",
                 shown(text));
  }
  return rank;
}

std::uint64_t hash_of(std::string_view bytes) noexcept {
  return std::hash<std::string_view>()(bytes);
}

}  // namespace

Vocabulary::Vocabulary(const NamedText& file) {
  const auto count = static_cast<std::size_t>(std::count(file.text.begin(), file.text.end(), '\n'));
  if (file.text.empty() || file.text.size() > kMaxFileBytes) {
    throw Error(ErrorKind::kUserFile, {.what = "not a vocabulary",
                                       .where = file.name + ", line 1",
                                       .expected = "\"base64 rank\" on every line, below 2 GiB",
                                       .found = std::to_string(file.text.size()) + " bytes"});
  }
  spans_.resize(count);
  slots_.resize(std::bit_ceil(2 * count + 1));
  bytes_.reserve(file.text.size() / 2);
  std::vector<std::uint32_t> line_of_rank(count);  // 0: not seen yet
  for (Lines lines(file); !lines.done();) {
    const std::string_view line = lines.next();
    const std::size_t blank = line.find(' ');
    const std::size_t begin = bytes_.size();
    if (blank == std::string_view::npos || !append_base64(line.substr(0, blank), bytes_) ||
        bytes_.size() == begin) {
      lines.refuse("not a vocabulary line", "\"base64 rank\"", shown(line));
    }
    const std::size_t rank = parse_rank(line.substr(blank + 1), count, lines);
    const std::string_view bytes = std::string_view(bytes_).substr(begin);
    const std::uint64_t hash = hash_of(bytes);
    Slot& slot = slots_[find(bytes, hash)];
    if (slot.rank != kNoRank) {
      lines.refuse("duplicate bytes", "bytes that no other line has",
                   shown(line) + ", the bytes of rank " + std::to_string(slot.rank));
    }
    if (line_of_rank[rank] != 0) {
      lines.refuse("duplicate rank", "a rank that no other line has",
                   std::to_string(rank) + ", as on line " + std::to_string(line_of_rank[rank]));
    }
    line_of_rank[rank] = static_cast<std::uint32_t>(lines.number());
    spans_[rank] = {static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(bytes.size())};
    slot = {static_cast<std::int32_t>(rank), static_cast<std::uint32_t>(hash >> 32U)};
    longest_ = std::max(longest_, bytes.size());
  }
  for (int byte = 0; byte < 256; ++byte) {
    const char character = static_cast<char>(byte);
    if (rank({&character, 1}) == kNoRank) {
      throw Error(ErrorKind::kUserFile,
                  {.what = "a byte without a rank",
                   .where = file.name + ", line " + std::to_string(count) + " (the last)",
                   .expected = "all 256 single bytes in the file",
                   .found = "none for byte " + std::to_string(byte)});
    }
  }
}

std::int32_t Vocabulary::rank(std::string_view bytes) const noexcept {
  return bytes.size() > longest_ ? kNoRank : slots_[find(bytes, hash_of(bytes))].rank;
}

std::size_t Vocabulary::find(std::string_view bytes, std::uint64_t hash) const noexcept {
  const std::size_t mask = slots_.size() - 1;
  const auto tag = static_cast<std::uint32_t>(hash >> 32U);
  std::size_t place = static_cast<std::size_t>(hash) & mask;
  while (slots_[place].rank != kNoRank &&
         (slots_[place].tag != tag || this->bytes(slots_[place].rank) != bytes)) {
    place = (place + 1) & mask;
  }
  return place;
}

}  // namespace k3::text

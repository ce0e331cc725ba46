#include "k3/text_stream.h"

#include <algorithm>
#include <utility>

#include "text/characters.h"

namespace k3 {
namespace {

// Bytes at the end of `text` that are the beginning of a character: 0 to 3.
std::size_t begun_character(std::string_view text) {
  constexpr std::size_t kLongest = 4;
  for (std::size_t bytes = 1; bytes < kLongest && bytes <= text.size(); ++bytes) {
    const std::string_view tail = text.substr(text.size() - bytes);
    if (text::begins_character(tail)) {
      return bytes;
    }
  }
  return 0;
}

// The longest end of `text` that is the beginning of one of `stops`.
std::size_t begun_stop(std::string_view text, const std::vector<std::string>& stops) {
  std::size_t longest = 0;
  for (const std::string& stop : stops) {
    for (std::size_t size = longest + 1; size < stop.size() && size <= text.size(); ++size) {
      if (text.ends_with(std::string_view(stop).substr(0, size))) {
        longest = size;
      }
    }
  }
  return longest;
}

}  // namespace

TextStream::TextStream(std::vector<std::string> stops) : stops_(std::move(stops)) {}

std::string_view TextStream::push(std::string_view bytes) {
  shown_.clear();
  if (stopped_) {
    return shown_;
  }
  for (const char byte : bytes) {
    waiting_ += byte;
    std::size_t length = 0;
    for (std::size_t i = 0; i < stops_.size(); ++i) {
      if (stops_[i].size() > length && waiting_.ends_with(stops_[i])) {
        length = stops_[i].size();
        stopped_ = i;
      }
    }
    if (stopped_) {
      shown_.assign(waiting_, 0, waiting_.size() - length);
      waiting_.clear();
      return shown_;
    }
  }
  const std::string_view beyond_stop =
      std::string_view(waiting_).substr(0, waiting_.size() - begun_stop(waiting_, stops_));
  shown_ = beyond_stop.substr(0, beyond_stop.size() - begun_character(beyond_stop));
  waiting_.erase(0, shown_.size());
  return shown_;
}

std::string_view TextStream::finish() {
  shown_ = std::exchange(waiting_, {});
  return shown_;
}

}  // namespace k3

#include "io/huge_integer.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <system_error>

namespace k3::io {
namespace {

// Index of the quote that closes a string whose text begins at `at`; text.size() without one.
std::size_t end_of_string(std::string_view text, std::size_t at) {
  while (at < text.size() && text[at] != '"') {
    at += text[at] == '\\' ? 2U : 1U;
  }
  return std::min(at, text.size());
}

// The digits from `at` on; empty when there is none.
std::string_view digits_at(std::string_view text, std::size_t at) {
  const std::size_t end = std::min(text.find_first_not_of("0123456789", at), text.size());
  return text.substr(at, end - at);
}

bool fits_64_bits(std::string_view digits) {
  std::uint64_t value = 0;
  return digits.empty() ||
         std::from_chars(digits.data(), digits.data() + digits.size(), value).ec == std::errc();
}

// Walks over the text; keys of the outermost object are remembered, text within quotes is skipped.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  std::optional<HugeInteger> find() {
    for (; at_ < text_.size(); ++at_) {
      const std::string_view digits = digits_at(text_, at_);
      if (!fits_64_bits(digits)) {
        const std::size_t sign = at_ > 0 && text_[at_ - 1] == '-' ? 1U : 0U;
        return HugeInteger{.key = key_, .digits = text_.substr(at_ - sign, digits.size() + sign)};
      }
      if (digits.empty()) {
        pass_character();
      } else {
        at_ += digits.size() - 1;
      }
    }
    return std::nullopt;
  }

 private:
  void pass_character() {
    const char character = text_[at_];
    if (character == '"') {
      const std::size_t end = end_of_string(text_, at_ + 1);
      if (depth_ == 1) {
        key_ = text_.substr(at_ + 1, end - at_ - 1);
      }
      at_ = end;
    } else if (character == '{' || character == '[') {
      ++depth_;
    } else if (character == '}' || character == ']') {
      depth_ -= std::min<std::size_t>(depth_, 1);
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t depth_ = 0;
  std::string_view key_;
};

}  // namespace

std::optional<HugeInteger> find_huge_integer(std::string_view text) {
  return Scanner(text).find();
}

}  // namespace k3::io

// JSON as a tree that keeps what chats depend on: the order of members and the digits of numbers.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace k3::text {

// One value. Numbers are text, written as Python's json module writes what it reads: the official
// encoder is in Python, and the ids of a chat depend on every character.
struct JsonTree {
  enum class Kind {
    kNull,
    kBoolean,
    kNumber,
    kString,
    kArray,
    kObject
  };

  Kind kind = Kind::kNull;
  std::string text;  // of a string: its content; of a boolean or number: as it is written
  std::vector<JsonTree> items;
  std::vector<std::pair<std::string, JsonTree>> members;  // keys differ; in the order of the text

  // The member of this key, or nullptr.
  [[nodiscard]] const JsonTree* find(std::string_view key) const;

  friend bool operator==(const JsonTree&, const JsonTree&) = default;
};

// What is wrong with a text that is no JSON, and where.
struct JsonFault {
  std::string what;
  std::size_t byte = 0;  // offset at which reading stopped
};

// Objects and arrays within each other, at most.
inline constexpr std::size_t kMaxJsonDepth = 256;

enum class Duplicates {
  kRefused,
  kLastWins,  // at the place of the first, as in Python
};

// False, with `fault` filled, for what is not one JSON value, for a number that no double holds
// and for one that is nested deeper than kMaxJsonDepth.
[[nodiscard]] bool parse_json(std::string_view text,
                              Duplicates duplicates,
                              JsonTree& value,
                              JsonFault& fault);

enum class Keys {
  kAsTheyCome,
  kSorted
};

// Without blanks; everything but quotes, backslashes and control characters raw. Keys are sorted by
// code points.
[[nodiscard]] std::string write_json(const JsonTree& value, Keys keys);

// `text` in quotes. Bytes that are not UTF-8, which JSON cannot hold, become U+FFFD.
[[nodiscard]] std::string json_string(std::string_view text);

// A word for messages: "an object", "a string".
[[nodiscard]] std::string_view json_kind(const JsonTree& value);

}  // namespace k3::text

#include "text/json_tree.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>

// The library never aborts: what it finds in a text is reported, never by assert().
#define JSON_ASSERT(condition) static_cast<void>(0)  // NOLINT(readability-identifier-naming)
#include <nlohmann/json.hpp>

#include "text/characters.h"

namespace k3::text {
namespace {

using nlohmann::json;

// A float as Python's repr: the shortest digits that read back, an exponent below 1e-4 and from 1e16.
std::string python_float(double value) {
  std::array<char, 32> buffer = {};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 std::chars_format::scientific)
                       .ptr;
  const std::string_view scientific(buffer.data(), static_cast<std::size_t>(end - buffer.data()));
  const std::size_t mark = scientific.find('e');
  int exponent = 0;
  const std::size_t digits_at = mark + (scientific[mark + 1] == '+' ? 2 : 1);
  std::from_chars(scientific.data() + digits_at, scientific.data() + scientific.size(), exponent);
  if (exponent < -4 || exponent >= 16) {
    return std::string(scientific);
  }
  std::array<char, 64> plain = {};
  const auto plain_end =
      std::to_chars(plain.data(), plain.data() + plain.size(), value, std::chars_format::fixed).ptr;
  const std::string fixed(plain.data(), plain_end);
  return fixed.find('.') == std::string::npos ? fixed + ".0" : fixed;
}

// Builds the tree while nlohmann's parser walks through the text.
class Builder final : public nlohmann::json_sax<json> {
 public:
  Builder(Duplicates duplicates, JsonTree& root, JsonFault& fault)
      : duplicates_(duplicates), root_(root), fault_(fault) {}

  bool null() override { return place({JsonTree::Kind::kNull, "null", {}, {}}) != nullptr; }

  bool boolean(bool value) override {
    return place({JsonTree::Kind::kBoolean, value ? "true" : "false", {}, {}}) != nullptr;
  }

  bool number_integer(std::int64_t value) override { return number(std::to_string(value)); }

  bool number_unsigned(std::uint64_t value) override { return number(std::to_string(value)); }

  bool number_float(double value, const std::string& digits) override {
    // An integer that 64 bits do not hold keeps its digits, as in Python.
    const bool integer = digits.find_first_of(".eE") == std::string::npos;
    return number(integer ? digits : python_float(value));
  }

  bool string(std::string& value) override {
    return place({JsonTree::Kind::kString, std::move(value), {}, {}}) != nullptr;
  }

  bool binary(json::binary_t& /*value*/) override { return false; }

  bool start_object(std::size_t /*size*/) override { return open(JsonTree::Kind::kObject); }

  bool end_object() override { return close(); }

  bool start_array(std::size_t /*size*/) override { return open(JsonTree::Kind::kArray); }

  bool end_array() override { return close(); }

  bool key(std::string& name) override {
    auto& members = open_.back()->members;
    const auto found = std::find_if(members.begin(), members.end(),
                                    [&](const auto& member) { return member.first == name; });
    member_ = static_cast<std::size_t>(found - members.begin());
    if (found == members.end()) {
      members.emplace_back(std::move(name), JsonTree());
      return true;
    }
    if (duplicates_ == Duplicates::kRefused) {
      fault_.what = "the key \"" + name + "\" twice in an object";
      return false;
    }
    return true;
  }

  bool parse_error(std::size_t position,
                   const std::string& /*token*/,
                   const json::exception& error) override {
    fault_ = {error.what(), position == 0 ? 0 : position - 1};
    return false;
  }

 private:
  bool number(std::string digits) {
    return place({JsonTree::Kind::kNumber, std::move(digits), {}, {}}) != nullptr;
  }

  // Puts a value where the text has it; the parser holds to the grammar.
  JsonTree* place(JsonTree value) {
    JsonTree* target = &root_;
    if (!open_.empty() && open_.back()->kind == JsonTree::Kind::kArray) {
      target = &open_.back()->items.emplace_back();
    } else if (!open_.empty()) {
      target = &open_.back()->members[member_].second;
    }
    *target = std::move(value);
    return target;
  }

  bool open(JsonTree::Kind kind) {
    if (open_.size() == kMaxJsonDepth) {
      fault_.what = "nested deeper than " + std::to_string(kMaxJsonDepth);
      return false;
    }
    open_.push_back(place({kind, {}, {}, {}}));
    return true;
  }

  // The members of the object outside go on behind the one that was open.
  bool close() {
    open_.pop_back();
    return true;
  }

  Duplicates duplicates_;
  JsonTree& root_;
  JsonFault& fault_;
  std::vector<JsonTree*>
      open_;                // the path to where values go; no vector of the path grows meanwhile
  std::size_t member_ = 0;  // of the innermost object, set by its key
};

void write(const JsonTree& value, Keys keys, std::string& out);

void write_object(const JsonTree& value, Keys keys, std::string& out) {
  std::vector<const std::pair<std::string, JsonTree>*> members;
  members.reserve(value.members.size());
  for (const auto& member : value.members) {
    members.push_back(&member);
  }
  if (keys == Keys::kSorted) {
    std::sort(members.begin(), members.end(),
              [](const auto* a, const auto* b) { return a->first < b->first; });
  }
  const char* separator = "{";
  for (const auto* member : members) {
    out += separator;
    out += json_string(member->first) + ":";
    write(member->second, keys, out);
    separator = ",";
  }
  out += members.empty() ? "{}" : "}";
}

void write(const JsonTree& value, Keys keys, std::string& out) {
  switch (value.kind) {
    case JsonTree::Kind::kString:
      out += json_string(value.text);
      break;
    case JsonTree::Kind::kObject:
      write_object(value, keys, out);
      break;
    case JsonTree::Kind::kArray: {
      const char* separator = "[";
      for (const JsonTree& item : value.items) {
        out += separator;
        write(item, keys, out);
        separator = ",";
      }
      out += value.items.empty() ? "[]" : "]";
      break;
    }
    case JsonTree::Kind::kNull:
    case JsonTree::Kind::kBoolean:
    case JsonTree::Kind::kNumber:
      out += value.kind == JsonTree::Kind::kNull ? "null" : value.text;
      break;
  }
}

// An ASCII character inside a JSON string.
std::string escaped(char byte) {
  constexpr std::string_view kNamed = "\"\\\b\f\n\r\t";
  constexpr std::string_view kNames = "\"\\bfnrt";
  if (const std::size_t index = kNamed.find(byte); index != std::string_view::npos) {
    return {'\\', kNames[index]};
  }
  const auto code = static_cast<unsigned char>(byte);
  if (code >= 0x20) {
    return {byte};
  }
  constexpr std::string_view kDigits = "0123456789abcdef";
  return {'\\', 'u', '0', '0', kDigits[code / 16U], kDigits[code % 16U]};
}

}  // namespace

const JsonTree* JsonTree::find(std::string_view key) const {
  const auto found = std::find_if(members.begin(), members.end(),
                                  [&](const auto& member) { return member.first == key; });
  return found == members.end() ? nullptr : &found->second;
}

bool parse_json(std::string_view text, Duplicates duplicates, JsonTree& value, JsonFault& fault) {
  Builder builder(duplicates, value, fault);
  return json::sax_parse(text, &builder);
}

std::string write_json(const JsonTree& value, Keys keys) {
  std::string out;
  write(value, keys, out);
  return out;
}

std::string json_string(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    char32_t point = 0;
    const std::size_t bytes = read_code_point(text, point);
    if (bytes == 0) {
      out += "\xEF\xBF\xBD";
    } else if (bytes == 1) {
      out += escaped(text.front());
    } else {
      out += text.substr(0, bytes);
    }
    text.remove_prefix(std::max<std::size_t>(bytes, 1));
  }
  return out + "\"";
}

std::string_view json_kind(const JsonTree& value) {
  constexpr std::array<std::string_view, 6> kWords = {"null",     "a boolean", "a number",
                                                      "a string", "an array",  "an object"};
  return kWords[static_cast<std::size_t>(value.kind)];
}

}  // namespace k3::text

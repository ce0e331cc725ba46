#include "text/special_tokens.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <optional>
#include <unordered_set>

// The library never aborts: what it finds in a file is reported by exceptions, never by assert().
#define JSON_ASSERT(condition) static_cast<void>(0)  // NOLINT(readability-identifier-naming)
#include <nlohmann/json.hpp>

#include "k3/errors.h"

#include "base/printable.h"

namespace k3::text {
namespace {

using nlohmann::json;

constexpr const char* kAddedTokens = "added_tokens_decoder";
constexpr const char* kEosToken = "eos_token";
constexpr const char* kEndOfMessage = "<|end_of_msg|>";

// A JSON value as a message shows it.
std::string shown(const json& value) {
  if (value.is_object() || value.is_array()) {
    return value.is_object() ? "an object" : "an array";
  }
  return printable(value.dump(), 80);
}

// Sees every key while the document is read, and refuses one that its object has already.
class KeyWatcher {
 public:
  explicit KeyWatcher(const std::string& where) : where_(where) {}

  bool operator()(int /*depth*/, json::parse_event_t event, const json& parsed) {
    if (event == json::parse_event_t::object_start) {
      keys_.emplace_back();
    } else if (event == json::parse_event_t::object_end) {
      keys_.pop_back();
    } else if (event == json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys_.back().insert(key).second) {
        refuse_user_file(where_ + ": " + printable(key), "duplicate key", "it once in its object",
                         "it twice");
      }
    }
    return true;
  }

 private:
  const std::string& where_;
  std::vector<std::unordered_set<std::string>> keys_;  // of the objects that are open
};

json parse_document(const NamedText& config) {
  KeyWatcher watcher(config.name);
  json document;
  try {
    document = json::parse(config.text, std::ref(watcher));
  } catch (const json::parse_error& fault) {
    const std::string_view before = config.text.substr(0, fault.byte == 0 ? 0 : fault.byte - 1);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    refuse_user_file(config.name + ", line " + std::to_string(line), "not valid JSON",
                     "a JSON object", printable(fault.what(), 300));
  } catch (const json::exception& fault) {  // a number that no double holds: it has no place
    refuse_user_file(config.name, "cannot be read", "a JSON object", printable(fault.what(), 300));
  }
  if (!document.is_object()) {
    refuse_user_file(config.name + ", line 1", "top level", "a JSON object", shown(document));
  }
  return document;
}

const json& require_object(const json& document, const std::string& where) {
  const auto found = document.find(kAddedTokens);
  if (found == document.end() || !found->is_object()) {
    refuse_user_file(where + ": " + kAddedTokens, "special tokens",
                     "an object of ids and their content",
                     found == document.end() ? "nothing" : shown(*found));
  }
  return *found;
}

// The text of a token, which is a string or an object with the string `content`.
std::string content_of(const json& token, const std::string& where) {
  const json* text = &token;
  if (token.is_object()) {
    const auto content = token.find("content");
    text = content == token.end() ? nullptr : &*content;
  }
  if (text == nullptr || !text->is_string() || text->get_ref<const std::string&>().empty()) {
    refuse_user_file(where, "name of a special token", "a string that is not empty",
                     text == nullptr ? "nothing" : shown(*text));
  }
  return text->get<std::string>();
}

// The index of an id among the special ones.
std::optional<std::size_t> index_of(const std::string& id, std::size_t first) {
  std::size_t number = 0;
  const char* const end = id.data() + id.size();
  const auto result = std::from_chars(id.data(), end, number);
  if (result.ec != std::errc() || result.ptr != end || id != std::to_string(number) ||
      number < first || number - first >= kSpecialTokens) {
    return std::nullopt;
  }
  return number - first;
}

std::int32_t id_of(const SpecialTokens& tokens,
                   std::size_t first,
                   const std::string& name,
                   const std::string& where) {
  const auto found = std::find(tokens.names.begin(), tokens.names.end(), name);
  if (found == tokens.names.end()) {
    refuse_user_file(where, "end of a turn", "the name of a special token",
                     "\"" + printable(name) + "\"");
  }
  return static_cast<std::int32_t>(first) + static_cast<std::int32_t>(found - tokens.names.begin());
}

void name_the_rest(SpecialTokens& tokens, std::size_t first, const std::string& where) {
  std::unordered_set<std::string> seen;
  for (std::size_t i = 0; i < kSpecialTokens; ++i) {
    std::string& name = tokens.names[i];
    if (name.empty()) {
      name = "<|reserved_token_" + std::to_string(first + i) + "|>";
    }
    if (!seen.insert(name).second) {
      refuse_user_file(where + ": " + kAddedTokens, "two special tokens of one name",
                       "different names", "\"" + printable(name) + "\" twice");
    }
  }
}

}  // namespace

SpecialTokens read_special_tokens(const NamedText& config,
                                  std::size_t first,
                                  const std::string& vocabulary) {
  const json document = parse_document(config);
  SpecialTokens tokens;
  tokens.names.resize(kSpecialTokens);
  for (const auto& [id, token] : require_object(document, config.name).items()) {
    const std::string where = config.name + ": " + kAddedTokens + "." + printable(id, 40);
    const std::optional<std::size_t> index = index_of(id, first);
    if (!index) {
      refuse_user_file(where, "not one of the 256 ids after the ranks",
                       std::to_string(first) + " to " + std::to_string(first + kSpecialTokens - 1) +
                           ", as the ranks of " + vocabulary + " end on line " +
                           std::to_string(first) + " (is it truncated, or of another model?)",
                       printable(id, 40));
    }
    tokens.names[*index] = content_of(token, where);
  }
  name_the_rest(tokens, first, config.name);
  const std::string eos_place = config.name + ": " + kEosToken;
  const auto eos = document.find(kEosToken);
  if (eos == document.end()) {
    refuse_user_file(eos_place, "end of a turn", "the name of a special token", "nothing");
  }
  tokens.end_ids = {id_of(tokens, first, content_of(*eos, eos_place), eos_place)};
  const std::int32_t end_of_message =
      id_of(tokens, first, kEndOfMessage, config.name + ": " + kAddedTokens);
  if (end_of_message != tokens.end_ids.front()) {
    tokens.end_ids.push_back(end_of_message);
  }
  return tokens;
}

}  // namespace k3::text

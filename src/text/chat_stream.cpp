#include "k3/chat_stream.h"

#include <algorithm>
#include <array>
#include <utility>

#include "text/json_tree.h"

namespace k3 {
namespace {

constexpr std::string_view kMessage = "message";
constexpr std::string_view kThink = "think";
constexpr std::string_view kResponse = "response";
constexpr std::string_view kTools = "tools";
constexpr std::string_view kCall = "call";
constexpr std::string_view kArgument = "argument";
constexpr std::string_view kJson = "json";

// The name of a tag: what stands before its attributes.
std::string name_of(const std::string& tag) {
  return tag.substr(0, tag.find(' '));
}

// The value of an attribute, empty where the tag has none.
std::string attribute(const std::string& tag, std::string_view key) {
  const std::string start = std::string(" ").append(key).append("=\"");
  const std::size_t found = tag.find(start);
  if (found == std::string::npos) {
    return {};
  }
  const std::size_t begin = found + start.size();
  std::string value = tag.substr(begin, tag.find('"', begin) - begin);
  constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kEntities = {
      {{"&quot;", "\""}, {"&amp;", "&"}}};
  for (const auto& [entity, character] : kEntities) {
    for (std::size_t at = 0; (at = value.find(entity, at)) != std::string::npos; ++at) {
      value.replace(at, entity.size(), character);
    }
  }
  return value;
}

// The text of an argument as JSON: of a string, and of what its type does not fit, a string.
std::string argument_json(const std::string& type, const std::string& value) {
  text::JsonTree tree;
  text::JsonFault fault;
  const bool parsed =
      type != "string" && text::parse_json(value, text::Duplicates::kLastWins, tree, fault);
  return parsed ? write_json(tree, text::Keys::kAsTheyCome) : text::json_string(value);
}

std::vector<std::string> first_tags(Thinking thinking) {
  return {std::string(kMessage), std::string(thinking == Thinking::kOff ? kResponse : kThink)};
}

}  // namespace

ChatStream::ChatStream(const ChatEncoder& encoder,
                       Thinking thinking,
                       std::vector<std::string> stops)
    : encoder_(encoder),
      stream_(std::move(stops)),
      opened_(first_tags(thinking)),
      responded_(thinking == Thinking::kOff) {
  message_.content.emplace_back();
}

void ChatStream::push(std::int32_t id, const ChatSink& sink) {
  const ChatMarkers& markers = encoder_.markers();
  if (ended_) {
    return;
  }
  if (id == markers.open || id == markers.close) {
    tag_ = id == markers.open ? Tag::kOpen : Tag::kClose;
    tag_text_.clear();
  } else if (id == markers.sep) {
    end_tag(sink);
  } else if (id == markers.end_of_message) {
    finish(sink);
    ended_ = true;
  } else if (encoder_.tokenizer().is_special(id)) {
    return;
  } else if (tag_ != Tag::kNone) {
    tag_text_ += encoder_.tokenizer().decode(id);
  } else {
    text(encoder_.tokenizer().decode(id), sink);
  }
}

void ChatStream::finish(const ChatSink& sink) {
  show(stream_.finish(), sink);
}

void ChatStream::end_tag(const ChatSink& sink) {
  const Tag tag = std::exchange(tag_, Tag::kNone);
  if (tag == Tag::kNone || tag_text_.empty()) {
    return;
  }
  finish(sink);  // what waits belongs to the channel before
  if (tag == Tag::kOpen) {
    open(tag_text_);
  } else {
    close(name_of(tag_text_));
  }
}

void ChatStream::open(const std::string& tag) {
  const std::string name = name_of(tag);
  responded_ = responded_ || name == kResponse;
  value_.clear();
  if (name == kCall) {
    message_.tool_calls.push_back({.id = "call_" + std::to_string(message_.tool_calls.size() + 1),
                                   .name = attribute(tag, "tool"),
                                   .arguments = "{}"});
  } else if (name == kArgument) {
    argument_key_ = attribute(tag, "key");
    argument_type_ = attribute(tag, "type");
  }
  opened_.push_back(name);
}

// Closes what is open inside as well. A name that is not open closes nothing.
void ChatStream::close(const std::string& name) {
  if (std::find(opened_.begin(), opened_.end(), name) == opened_.end()) {
    return;
  }
  for (bool done = false; !done; opened_.pop_back()) {
    done = opened_.back() == name;
    end_value();
  }
}

// The tag that is open ends: an argument of the last call, or its raw JSON, is known.
void ChatStream::end_value() {
  if (message_.tool_calls.empty()) {
    return;
  }
  std::string& arguments = message_.tool_calls.back().arguments;
  if (opened_.back() == kArgument && arguments.ends_with('}')) {
    arguments.pop_back();
    arguments += (arguments.size() == 1 ? "" : ",") + text::json_string(argument_key_) + ":" +
                 argument_json(argument_type_, value_) + "}";
  } else if (opened_.back() == kJson) {
    arguments = value_;
  }
}

void ChatStream::text(std::string_view bytes, const ChatSink& sink) {
  const std::string_view place = opened_.empty() ? std::string_view() : opened_.back();
  if (place == kThink || place == kResponse) {
    show(stream_.push(bytes), sink);
  } else if (place == kArgument || place == kJson) {
    value_ += bytes;
  }
}

void ChatStream::show(std::string_view text, const ChatSink& sink) {
  if (text.empty()) {
    return;
  }
  const bool thinking = opened_.back() == kThink;
  (thinking ? message_.reasoning : message_.content.front().text) += text;
  if (sink) {
    sink(thinking ? ChatChannel::kThinking : ChatChannel::kResponse, text);
  }
}

// What a marker that has begun still needs before its end.
std::string ChatStream::rest_of_tag() const {
  std::vector<std::string_view> names;
  if (tag_ == Tag::kClose) {
    names.assign(opened_.rbegin(), opened_.rend());
  } else if (!opened_.empty() && opened_.back() == kTools) {
    names = {kCall};
  } else if (!opened_.empty() && opened_.back() == kCall) {
    names = {kArgument, kJson};
  } else {
    names = responded_ ? std::vector<std::string_view>{kTools, kResponse}
                       : std::vector<std::string_view>{kResponse, kThink};
  }
  for (const std::string_view name : names) {
    if (name.starts_with(tag_text_)) {
      return std::string(name.substr(tag_text_.size()));
    }
  }
  // In the middle of its attributes, or a tag of another name.
  return std::count(tag_text_.begin(), tag_text_.end(), '"') % 2 == 0 ? "" : "\"";
}

std::vector<std::int32_t> ChatStream::completion() const {
  std::vector<std::int32_t> ids;
  if (ended_) {
    return ids;
  }
  const Tokenizer& tokenizer = encoder_.tokenizer();
  const ChatMarkers& markers = encoder_.markers();
  const auto text = [&](const std::string& bytes) {
    const std::vector<std::int32_t> encoded = tokenizer.encode(bytes);
    ids.insert(ids.end(), encoded.begin(), encoded.end());
  };
  std::vector<std::string> opened = opened_;
  if (tag_ != Tag::kNone) {
    const std::string rest = rest_of_tag();
    text(rest);
    ids.push_back(markers.sep);
    const std::string name = name_of(tag_text_ + rest);
    const auto closed = std::find(opened.rbegin(), opened.rend(), name);
    if (tag_ == Tag::kOpen && !name.empty()) {
      opened.push_back(name);
    } else if (tag_ == Tag::kClose && closed != opened.rend()) {
      opened.erase(closed.base() - 1, opened.end());
    }
  }
  for (; !opened.empty(); opened.pop_back()) {
    ids.push_back(markers.close);
    text(opened.back());
    ids.push_back(markers.sep);
  }
  ids.push_back(markers.end_of_message);
  return ids;
}

}  // namespace k3

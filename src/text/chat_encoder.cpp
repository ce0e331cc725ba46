#include <algorithm>
#include <initializer_list>

#include "k3/chat.h"

#include "base/printable.h"
#include "text/json_tree.h"

namespace k3 {
namespace {

using text::JsonTree;

constexpr std::string_view kToolsHeading =
    "# Tools\nHere are the available tools, described in JSONSchema.\n\n```json\n";
constexpr std::string_view kFurtherToolsHeading =
    "## New Tools Available\nThe system dynamically extends the toolset via lazy-loading.\n"
    "You have access to all existing and extended tools.\n"
    "Here are the specs for the extended tools.\n\n```json\n";
constexpr std::string_view kEffort =
    "`thinking_effort` guides on how much to think in your thinking channel (not including the "
    "response channel), supported values include `low`, `medium`, `high`, and `max`.\n"
    "Now the system is invoked with `thinking_effort=";
constexpr std::string_view kRawJson =
    "`.\nYour response must be raw JSON data without markdown code blocks (```json) or any "
    "additional formatting.";
constexpr std::string_view kSchemaHeading =
    "\nThe JSON data must match the following schema:\n```json\n";

struct Attribute {
  std::string_view key;
  std::string_view value;
};

// & first, then quotes.
std::string escape_attribute(std::string_view value) {
  std::string escaped;
  for (const char byte : value) {
    if (byte == '&') {
      escaped += "&amp;";
    } else if (byte == '"') {
      escaped += "&quot;";
    } else {
      escaped += byte;
    }
  }
  return escaped;
}

[[noreturn]] void refuse(std::string what, std::string expected, std::string found) {
  throw Error(ErrorKind::kUsage, {.what = std::move(what),
                                  .where = "chat",
                                  .expected = std::move(expected),
                                  .found = std::move(found)});
}

// A JSON text in the form that the format wants: keys sorted, no blanks.
std::string sorted_json(const std::string& text, const char* what, bool array) {
  JsonTree value;
  text::JsonFault fault;
  if (!text::parse_json(text, text::Duplicates::kLastWins, value, fault)) {
    refuse(std::string(what) + " cannot be read", array ? "a JSON array" : "JSON",
           printable(fault.what, 300));
  }
  if (array && value.kind != JsonTree::Kind::kArray) {
    refuse(what, "a JSON array", std::string(text::json_kind(value)));
  }
  return write_json(value, text::Keys::kSorted);
}

std::string_view argument_type(const JsonTree& value) {
  constexpr std::array<std::string_view, 6> kTypes = {"null",   "boolean", "number",
                                                      "string", "array",   "object"};
  return kTypes[static_cast<std::size_t>(value.kind)];
}

// The ids of one prompt as they grow. Every text goes through Tokenizer::encode, which yields no
// special id; markers come from the functions that place them, and from nowhere else.
class Writer {
 public:
  Writer(const Tokenizer& tokenizer, const ChatMarkers& markers, const ChatOptions& options)
      : tokenizer_(tokenizer), markers_(markers), options_(options) {}

  void preamble() {
    if (!options_.tools.empty()) {
      declare_tools(kToolsHeading, options_.tools);
    }
    if (thinking()) {
      system("thinking-effort",
             std::string(kEffort) + std::string(thinking_name(options_.thinking)) + "`.");
    }
  }

  void conversation(std::span<const ChatMessage> messages) {
    for (std::size_t i = 0; i < messages.size(); ++i) {
      if (messages[i].role != ChatRole::kTool) {
        message(messages[i]);
        continue;
      }
      const auto end =
          std::find_if(messages.begin() + static_cast<std::ptrdiff_t>(i), messages.end(),
                       [](const ChatMessage& other) { return other.role != ChatRole::kTool; });
      const auto count = static_cast<std::size_t>(end - messages.begin()) - i;
      results(messages.subspan(i, count));
      i += count - 1;
    }
    if (images_ != options_.image_prompts.size()) {
      refuse("image prompts", std::to_string(images_) + ", as many as there are images",
             std::to_string(options_.image_prompts.size()));
    }
  }

  void ending() {
    if (options_.tool_choice != ToolChoice::kAuto) {
      const bool required = options_.tool_choice == ToolChoice::kRequired;
      system("tool-choice", required
                                ? "The system is invoked with `tool_choice=required`.\nYou MUST "
                                  "call tools in the next message."
                                : "The system is invoked with `tool_choice=none`.\nYou MUST NOT "
                                  "call any tools in the next message.");
    }
    if (options_.response_format != ResponseFormat::kText) {
      const bool schema = options_.response_format == ResponseFormat::kJsonSchema;
      std::string body = "The system is invoked with `response_format=";
      body.append(schema ? "json_schema" : "json_object").append(kRawJson);
      if (schema) {
        body.append(kSchemaHeading)
            .append(sorted_json(options_.response_schema, "response schema", false))
            .append("\n```");
      }
      system("response-format", body);
    }
    if (options_.generation_prefix) {
      open("message", {{"role", "assistant"}});
      open(thinking() ? "think" : "response");
    }
  }

  [[nodiscard]] std::vector<std::int32_t> take() { return std::move(ids_); }

 private:
  [[nodiscard]] bool thinking() const { return options_.thinking != Thinking::kOff; }

  void text(std::string_view content) {
    const std::vector<std::int32_t> ids = tokenizer_.encode(content);
    ids_.insert(ids_.end(), ids.begin(), ids.end());
  }

  void open(std::string_view tag, std::initializer_list<Attribute> attributes = {}) {
    ids_.push_back(markers_.open);
    text(tag);
    for (const Attribute& attribute : attributes) {
      text(std::string(" ").append(attribute.key));
      text("=\"");
      text(escape_attribute(attribute.value));
      text("\"");
    }
    ids_.push_back(markers_.sep);
  }

  void close(std::string_view tag) {
    ids_.push_back(markers_.close);
    text(tag);
    ids_.push_back(markers_.sep);
  }

  void end_message() {
    close("message");
    ids_.push_back(markers_.end_of_message);
  }

  void system(std::string_view type, std::string_view body) {
    open("message", {{"role", "system"}, {"type", type}});
    text(body);
    end_message();
  }

  void declare_tools(std::string_view heading, const std::string& tools) {
    system("tool-declare", std::string(heading) + sorted_json(tools, "tools", true) + "\n```");
  }

  // Each part is tokenized on its own.
  void content(const ChatMessage& message) {
    for (const ChatPart& part : message.content) {
      if (!part.image) {
        text(part.text);
        continue;
      }
      if (images_ == options_.image_prompts.size()) {
        refuse("image prompts", "one for each image", std::to_string(images_));
      }
      text_with_specials(options_.image_prompts[images_++]);
    }
  }

  // The id whose name stands at the beginning of `content`; the longest such name.
  [[nodiscard]] std::optional<std::int32_t> special_at(std::string_view content) const {
    std::optional<std::int32_t> found;
    for (auto id = static_cast<std::int32_t>(tokenizer_.vocab_size()) - 1;
         tokenizer_.is_special(id); --id) {
      const std::string_view name = tokenizer_.decode(id);
      if (content.substr(0, name.size()) == name &&
          (!found || name.size() > tokenizer_.decode(*found).size())) {
        found = id;
      }
    }
    return found;
  }

  void text_with_specials(std::string_view content) {
    std::size_t begin = 0;
    for (std::size_t at = 0; at < content.size();) {
      const std::optional<std::int32_t> special = special_at(content.substr(at));
      if (!special) {
        ++at;
        continue;
      }
      text(content.substr(begin, at - begin));
      ids_.push_back(*special);
      at += tokenizer_.decode(*special).size();
      begin = at;
    }
    text(content.substr(begin));
  }

  void message(const ChatMessage& message) {
    if (message.role == ChatRole::kAssistant) {
      assistant(message);
      return;
    }
    if (message.role == ChatRole::kSystem && !message.tools.empty()) {
      if (!message.content.empty()) {
        refuse("system message", "either content or tools", "both");
      }
      declare_tools(kFurtherToolsHeading, message.tools);
      return;
    }
    const bool user = message.role == ChatRole::kUser;
    if (user && !message.name.empty()) {
      open("message", {{"role", "user"}, {"name", message.name}});
    } else {
      open("message", {{"role", user ? "user" : "system"}});
    }
    content(message);
    end_message();
  }

  void assistant(const ChatMessage& message) {
    open("message", {{"role", "assistant"}});
    if (thinking()) {
      open("think");
      text(message.reasoning);
      close("think");
    }
    open("response");
    content(message);
    close("response");
    calls_ = message.tool_calls;
    if (!calls_.empty()) {
      open("tools");
      for (std::size_t i = 0; i < calls_.size(); ++i) {
        call(calls_[i], std::to_string(i + 1));
      }
      close("tools");
    }
    end_message();
  }

  void call(const ToolCall& call, const std::string& index) {
    open("call", {{"tool", call.name}, {"index", index}});
    JsonTree arguments;
    text::JsonFault fault;
    if (text::parse_json(call.arguments, text::Duplicates::kLastWins, arguments, fault) &&
        arguments.kind == JsonTree::Kind::kObject) {
      for (const auto& [key, value] : arguments.members) {
        open("argument", {{"key", key}, {"type", argument_type(value)}});
        text(value.kind == JsonTree::Kind::kString ? value.text
                                                   : write_json(value, text::Keys::kAsTheyCome));
        close("argument");
      }
    } else {
      open("json", {{"type", "object"}});
      text(call.arguments);
      close("json");
    }
    close("call");
  }

  // Results that follow each other, in the order of the calls that they answer.
  void results(std::span<const ChatMessage> messages) {
    std::vector<std::pair<std::size_t, const ChatMessage*>> ordered;
    for (const ChatMessage& message : messages) {
      const auto answered = std::find_if(calls_.begin(), calls_.end(), [&](const ToolCall& call) {
        return call.id == message.tool_call_id;
      });
      if (answered == calls_.end()) {
        refuse("tool result without its call", "the id of a call of the last assistant message",
               "\"" + printable(message.tool_call_id) + "\"");
      }
      ordered.emplace_back(static_cast<std::size_t>(answered - calls_.begin()), &message);
    }
    std::stable_sort(ordered.begin(), ordered.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [index, message] : ordered) {
      const std::string number = std::to_string(index + 1);
      open("message", {{"role", "tool"}, {"tool", calls_[index].name}, {"index", number}});
      content(*message);
      end_message();
    }
  }

  const Tokenizer& tokenizer_;
  const ChatMarkers& markers_;
  const ChatOptions& options_;
  std::vector<ToolCall> calls_;  // of the last assistant message
  std::size_t images_ = 0;       // image prompts used
  std::vector<std::int32_t> ids_;
};

constexpr std::array<std::pair<Thinking, std::string_view>, 4> kThinkingNames = {
    {{Thinking::kOff, "off"},
     {Thinking::kLow, "low"},
     {Thinking::kHigh, "high"},
     {Thinking::kMax, "max"}}};

std::int32_t marker(const Tokenizer& tokenizer, std::string_view name) {
  const std::optional<std::int32_t> id = tokenizer.special(name);
  if (!id) {
    throw Error(ErrorKind::kUserFile, {.what = "no special token for a marker of chats",
                                       .where = "tokenizer_config.json",
                                       .expected = std::string(name),
                                       .found = "no id of this name"});
  }
  return *id;
}

}  // namespace

ChatMessage text_message(ChatRole role, std::string_view text) {
  return {.role = role, .content = {{.text = std::string(text)}}};
}

std::string_view thinking_name(Thinking thinking) {
  return std::find_if(kThinkingNames.begin(), kThinkingNames.end(),
                      [&](const auto& entry) { return entry.first == thinking; })
      ->second;
}

std::optional<Thinking> thinking_of(std::string_view name) {
  const auto found = std::find_if(kThinkingNames.begin(), kThinkingNames.end(),
                                  [&](const auto& entry) { return entry.second == name; });
  return found == kThinkingNames.end() ? std::nullopt : std::optional(found->first);
}

ChatMarkers::ChatMarkers(const Tokenizer& tokenizer)
    : open(marker(tokenizer, "<|open|>")),
      close(marker(tokenizer, "<|close|>")),
      sep(marker(tokenizer, "<|sep|>")),
      end_of_message(marker(tokenizer, "<|end_of_msg|>")) {}

ChatEncoder::ChatEncoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer), markers_(tokenizer) {}

std::vector<std::int32_t> ChatEncoder::encode(std::span<const ChatMessage> messages,
                                              const ChatOptions& options) const {
  Writer writer(tokenizer_, markers_, options);
  writer.preamble();
  writer.conversation(messages);
  writer.ending();
  return writer.take();
}

std::vector<std::int32_t> ChatEncoder::encode_turn(std::span<const ChatMessage> messages,
                                                   const ChatOptions& options) const {
  Writer writer(tokenizer_, markers_, options);
  writer.conversation(messages);
  writer.ending();
  return writer.take();
}

}  // namespace k3

// Messages as JSON: one a line in a history file.

#include <algorithm>
#include <initializer_list>

#include "k3/chat.h"
#include "k3/errors.h"

#include "base/printable.h"
#include "text/json_tree.h"

namespace k3 {
namespace {

using text::json_string;
using text::JsonTree;
using Kind = JsonTree::Kind;

constexpr std::array<std::pair<ChatRole, std::string_view>, 4> kRoles = {
    {{ChatRole::kSystem, "system"},
     {ChatRole::kUser, "user"},
     {ChatRole::kAssistant, "assistant"},
     {ChatRole::kTool, "tool"}}};

// A value as a message shows it.
std::string shown(const JsonTree& value) {
  return value.kind == Kind::kString ? "\"" + printable(value.text, 80) + "\""
                                     : std::string(text::json_kind(value));
}

// An object of a line, whose members are all asked for or refused.
class Fields {
 public:
  Fields(const JsonTree& object, std::string where) : object_(object), where_(std::move(where)) {
    if (object.kind != Kind::kObject) {
      refuse_user_file(where_, "not a message", "an object", shown(object));
    }
  }

  // Refuses a member that is not among these.
  void only(std::initializer_list<std::string_view> known) const {
    for (const auto& [key, value] : object_.members) {
      if (std::find(known.begin(), known.end(), key) == known.end()) {
        refuse_user_file(where_, "unknown key", "none but those of docs/chat.md",
                         "\"" + printable(key, 80) + "\"");
      }
    }
  }

  // The member, unless it is missing or null.
  [[nodiscard]] const JsonTree* optional(std::string_view key) const {
    const JsonTree* value = object_.find(key);
    return value == nullptr || value->kind == Kind::kNull ? nullptr : value;
  }

  [[nodiscard]] const JsonTree& of_kind(std::string_view key, Kind kind) const {
    const JsonTree* value = object_.find(key);
    if (value == nullptr || value->kind != kind) {
      refuse_user_file(place(key), "wrong value",
                       kind == Kind::kString ? "a string" : "an array or object",
                       value == nullptr ? "nothing" : shown(*value));
    }
    return *value;
  }

  [[nodiscard]] const std::string& string(std::string_view key) const {
    return of_kind(key, Kind::kString).text;
  }

  [[nodiscard]] std::string string_or_empty(std::string_view key) const {
    return optional(key) == nullptr ? std::string() : string(key);
  }

  [[nodiscard]] std::string place(std::string_view key) const {
    return where_ + ": " + std::string(key);
  }

 private:
  const JsonTree& object_;
  std::string where_;
};

ChatPart read_part(const JsonTree& value, const std::string& where) {
  const Fields part(value, where);
  const std::string& type = part.string("type");
  if (type == "text") {
    part.only({"type", "text"});
    return {.text = part.string("text")};
  }
  if (type == "image_url") {
    part.only({"type", "image_url"});
    return {.image = true};
  }
  refuse_user_file(part.place("type"), "unknown part", "\"text\" or \"image_url\"",
                   "\"" + printable(type, 80) + "\"");
}

std::vector<ChatPart> read_content(const Fields& message) {
  const JsonTree* content = message.optional("content");
  if (content == nullptr) {
    return {};
  }
  if (content->kind == Kind::kString) {
    return {{.text = content->text}};
  }
  if (content->kind != Kind::kArray) {
    refuse_user_file(message.place("content"), "wrong value", "a string or an array of parts",
                     shown(*content));
  }
  std::vector<ChatPart> parts;
  for (const JsonTree& part : content->items) {
    parts.push_back(read_part(part, message.place("content")));
  }
  return parts;
}

ToolCall read_call(const JsonTree& value, const std::string& where) {
  const Fields call(value, where);
  call.only({"id", "type", "function"});
  if (call.optional("type") != nullptr && call.string("type") != "function") {
    refuse_user_file(call.place("type"), "unknown call", "\"function\"",
                     shown(*call.optional("type")));
  }
  const Fields function(call.of_kind("function", Kind::kObject), call.place("function"));
  function.only({"name", "arguments"});
  const JsonTree* arguments = function.optional("arguments");
  std::string text = "{}";
  if (arguments != nullptr) {
    text = arguments->kind == Kind::kObject ? write_json(*arguments, text::Keys::kAsTheyCome)
                                            : function.string("arguments");
  }
  return {call.string("id"), function.string("name"), text};
}

ChatRole read_role(const Fields& message) {
  const std::string& role = message.string("role");
  const auto found = std::find_if(kRoles.begin(), kRoles.end(),
                                  [&](const auto& entry) { return entry.second == role; });
  if (found == kRoles.end()) {
    refuse_user_file(message.place("role"), "unknown role", "system, user, assistant or tool",
                     "\"" + printable(role, 80) + "\"");
  }
  return found->first;
}

// A message other than an assistant's without its content says nothing.
void require_content(const Fields& message) {
  if (message.optional("content") == nullptr) {
    refuse_user_file(message.place("content"), "wrong value", "a string or an array of parts",
                     "nothing");
  }
}

ChatMessage read_message(const Fields& fields) {
  ChatMessage message = {.role = read_role(fields), .content = read_content(fields)};
  switch (message.role) {
    case ChatRole::kSystem:
      fields.only({"role", "content", "tools"});
      if (fields.optional("tools") != nullptr) {
        message.tools = write_json(fields.of_kind("tools", Kind::kArray), text::Keys::kAsTheyCome);
        if (fields.optional("content") != nullptr) {
          refuse_user_file(fields.place("tools"), "a system message", "either content or tools",
                           "both");
        }
      } else {
        require_content(fields);
      }
      break;
    case ChatRole::kUser:
      fields.only({"role", "content", "name"});
      message.name = fields.string_or_empty("name");
      require_content(fields);
      break;
    case ChatRole::kAssistant:
      fields.only({"role", "content", "reasoning_content", "tool_calls"});
      message.reasoning = fields.string_or_empty("reasoning_content");
      if (fields.optional("tool_calls") != nullptr) {
        for (const JsonTree& call : fields.of_kind("tool_calls", Kind::kArray).items) {
          message.tool_calls.push_back(read_call(call, fields.place("tool_calls")));
        }
      }
      if (message.tool_calls.empty()) {
        require_content(fields);
      }
      break;
    case ChatRole::kTool:
      fields.only({"role", "content", "tool_call_id"});
      message.tool_call_id = fields.string("tool_call_id");
      require_content(fields);
      break;
  }
  return message;
}

ToolChoice read_tool_choice(const Fields& options) {
  const std::string choice = options.string_or_empty("tool_choice");
  if (choice.empty() || choice == "auto") {
    return ToolChoice::kAuto;
  }
  if (choice != "required" && choice != "none") {
    refuse_user_file(options.place("tool_choice"), "unknown choice", "auto, required or none",
                     "\"" + printable(choice, 80) + "\"");
  }
  return choice == "required" ? ToolChoice::kRequired : ToolChoice::kNone;
}

void read_response_format(const Fields& options, ChatOptions& result) {
  if (options.optional("response_format") == nullptr) {
    return;
  }
  const std::string where = options.place("response_format");
  const Fields format(options.of_kind("response_format", Kind::kObject), where);
  format.only({"type", "json_schema"});
  const std::string& type = format.string("type");
  if (type == "json_schema") {
    const Fields schema(format.of_kind("json_schema", Kind::kObject), where + ".json_schema");
    result.response_format = ResponseFormat::kJsonSchema;
    result.response_schema =
        write_json(schema.of_kind("schema", Kind::kObject), text::Keys::kAsTheyCome);
  } else if (type == "json_object") {
    result.response_format = ResponseFormat::kJsonObject;
  } else if (type != "text") {
    refuse_user_file(where + ".type", "unknown format", "text, json_object or json_schema",
                     "\"" + printable(type, 80) + "\"");
  }
}

ChatOptions read_options(const JsonTree& value, const std::string& where) {
  const Fields fields(value, where + ": options");
  fields.only({"tools", "tool_choice", "response_format", "image_prompts"});
  ChatOptions options;
  if (fields.optional("tools") != nullptr) {
    options.tools = write_json(fields.of_kind("tools", Kind::kArray), text::Keys::kAsTheyCome);
  }
  options.tool_choice = read_tool_choice(fields);
  read_response_format(fields, options);
  if (fields.optional("image_prompts") != nullptr) {
    for (const JsonTree& prompt : fields.of_kind("image_prompts", Kind::kArray).items) {
      if (prompt.kind != Kind::kString) {
        refuse_user_file(fields.place("image_prompts"), "wrong value", "strings", shown(prompt));
      }
      options.image_prompts.push_back(prompt.text);
    }
  }
  return options;
}

JsonTree parse_line(std::string_view line, const std::string& where) {
  JsonTree value;
  text::JsonFault fault;
  if (!text::parse_json(line, text::Duplicates::kRefused, value, fault)) {
    refuse_user_file(where, "not valid JSON", "one JSON object a line", printable(fault.what, 300));
  }
  return value;
}

// A tool's result answers a call of the assistant message before it.
void check_answers(const ChatHistory& history, const std::string& where) {
  const ChatMessage& result = history.messages.back();
  if (result.role != ChatRole::kTool) {
    return;
  }
  const auto asked =
      std::find_if(history.messages.rbegin(), history.messages.rend(),
                   [](const ChatMessage& message) { return message.role == ChatRole::kAssistant; });
  const bool answers =
      asked != history.messages.rend() &&
      std::any_of(asked->tool_calls.begin(), asked->tool_calls.end(),
                  [&](const ToolCall& call) { return call.id == result.tool_call_id; });
  if (!answers) {
    refuse_user_file(where + ": tool_call_id", "tool result without its call",
                     "the id of a call of the assistant message before it",
                     "\"" + printable(result.tool_call_id, 80) + "\"");
  }
}

void read_line(std::string_view line, const std::string& where, ChatHistory& history) {
  const JsonTree value = parse_line(line, where);
  const Fields fields(value, where);
  if (value.find("reset") != nullptr) {
    fields.only({"reset"});
    if (value.find("reset")->text != "true") {
      refuse_user_file(fields.place("reset"), "wrong value", "true", shown(*value.find("reset")));
    }
    history = {};
  } else if (value.find("options") != nullptr) {
    fields.only({"options"});
    if (!history.messages.empty()) {
      refuse_user_file(where, "options after a message",
                       "them before the first message of a conversation", "options");
    }
    history.options = read_options(*value.find("options"), where);
  } else {
    history.messages.push_back(read_message(fields));
    check_answers(history, where);
  }
}

std::string write_content(const std::vector<ChatPart>& content) {
  if (content.empty() || (content.size() == 1 && !content.front().image)) {
    return json_string(content.empty() ? std::string_view() : content.front().text);
  }
  std::string out;
  for (const ChatPart& part : content) {
    out += out.empty() ? "[" : ",";
    out += part.image ? R"({"type":"image_url","image_url":{"url":""}})"
                      : R"({"type":"text","text":)" + json_string(part.text) + "}";
  }
  return out + "]";
}

std::string write_calls(const std::vector<ToolCall>& calls) {
  std::string out;
  for (const ToolCall& call : calls) {
    out += out.empty() ? "[" : ",";
    out += R"({"id":)" + json_string(call.id) + R"(,"type":"function","function":{"name":)" +
           json_string(call.name) + R"(,"arguments":)" + json_string(call.arguments) + "}}";
  }
  return out + "]";
}

}  // namespace

std::string write_chat_message(const ChatMessage& message) {
  const auto role = std::find_if(kRoles.begin(), kRoles.end(),
                                 [&](const auto& entry) { return entry.first == message.role; });
  std::string line = R"({"role":)" + json_string(role->second);
  if (!message.name.empty()) {
    line += R"(,"name":)" + json_string(message.name);
  }
  if (message.role == ChatRole::kTool) {
    line += R"(,"tool_call_id":)" + json_string(message.tool_call_id);
  }
  if (!message.reasoning.empty()) {
    line += R"(,"reasoning_content":)" + json_string(message.reasoning);
  }
  if (message.tools.empty()) {
    line += R"(,"content":)" + write_content(message.content);
  } else {
    line +=
        R"(,"tools":)" + write_json(parse_line(message.tools, "tools"), text::Keys::kAsTheyCome);
  }
  if (!message.tool_calls.empty()) {
    line += R"(,"tool_calls":)" + write_calls(message.tool_calls);
  }
  return line + "}";
}

ChatHistory read_chat_history(const NamedText& file) {
  ChatHistory history;
  std::string_view rest = file.text;
  for (std::size_t number = 1; !rest.empty(); ++number) {
    const std::size_t end = rest.find('\n');
    read_line(rest.substr(0, end), file.name + ", line " + std::to_string(number), history);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  return history;
}

}  // namespace k3

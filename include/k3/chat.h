// Chats: messages to token ids in the official format, and the JSON that messages are written in
// (docs/chat.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "k3/tokenizer.h"

namespace k3 {

enum class ChatRole {
  kSystem,
  kUser,
  kAssistant,
  kTool
};

// A part of a message's content. An image stands for the next of ChatOptions::image_prompts.
struct ChatPart {
  std::string text = {};
  bool image = false;

  friend bool operator==(const ChatPart&, const ChatPart&) = default;
};

// A call of a tool by the assistant.
struct ToolCall {
  std::string id = {};
  std::string name = {};
  std::string arguments = {};  // the text of a JSON object; any other text is kept as it is

  friend bool operator==(const ToolCall&, const ToolCall&) = default;
};

// Fields that the role does not have stay empty.
struct ChatMessage {
  ChatRole role = ChatRole::kUser;
  std::vector<ChatPart> content = {};     // of a tool: the result
  std::string name = {};                  // user, optional
  std::string reasoning = {};             // assistant
  std::vector<ToolCall> tool_calls = {};  // assistant
  std::string tool_call_id = {};          // tool: the call that it answers
  std::string tools = {};                 // system: a JSON array of further tools, no content then

  friend bool operator==(const ChatMessage&, const ChatMessage&) = default;
};

// A message whose content is this text alone.
[[nodiscard]] ChatMessage text_message(ChatRole role, std::string_view text);

enum class Thinking {
  kOff,
  kLow,
  kHigh,
  kMax
};
enum class ToolChoice {
  kAuto,
  kRequired,
  kNone
};
enum class ResponseFormat {
  kText,
  kJsonObject,
  kJsonSchema
};

struct ChatOptions {
  Thinking thinking = Thinking::kMax;
  std::string tools = {};  // a JSON array, or empty
  ToolChoice tool_choice = ToolChoice::kAuto;
  ResponseFormat response_format = ResponseFormat::kText;
  std::string response_schema = {};  // of kJsonSchema: the schema, a JSON value
  // One for each image part, in order. The only texts in which names of special ids are these ids.
  std::vector<std::string> image_prompts = {};
  bool generation_prefix = true;  // end with the beginning of the assistant's message

  friend bool operator==(const ChatOptions&, const ChatOptions&) = default;
};

// The markers' ids.
struct ChatMarkers {
  // Throws Error(kUserFile) when the tokenizer lacks one.
  explicit ChatMarkers(const Tokenizer& tokenizer);

  std::int32_t open;            // <|open|>
  std::int32_t close;           // <|close|>
  std::int32_t sep;             // <|sep|>
  std::int32_t end_of_message;  // <|end_of_msg|>
};

// Messages to ids. No text of a message, a name or an attribute yields a special id.
class ChatEncoder {
 public:
  // The tokenizer must outlive it. Throws as ChatMarkers.
  explicit ChatEncoder(const Tokenizer& tokenizer);

  // The whole prompt. Throws Error(kUsage) for what cannot be rendered: tools or a schema that are no
  // JSON, a tool result without its call, a field that the role does not have.
  [[nodiscard]] std::vector<std::int32_t> encode(std::span<const ChatMessage> messages,
                                                 const ChatOptions& options) const;

  // What follows a finished assistant message: encode() without what stands before the conversation,
  // the tools and the effort. So encode(a and b) is encode(a), without prefix, tool choice and
  // response format, and encode_turn(b).
  [[nodiscard]] std::vector<std::int32_t> encode_turn(std::span<const ChatMessage> messages,
                                                      const ChatOptions& options) const;

  [[nodiscard]] const ChatMarkers& markers() const noexcept { return markers_; }

  [[nodiscard]] const Tokenizer& tokenizer() const noexcept { return tokenizer_; }

 private:
  const Tokenizer& tokenizer_;
  ChatMarkers markers_;
};

// The name of an effort, "off", "low", "high" or "max", and back.
[[nodiscard]] std::string_view thinking_name(Thinking thinking);
[[nodiscard]] std::optional<Thinking> thinking_of(std::string_view name);

// One line of JSON, without its end, that read_chat_history() reads back as this message; bytes that
// are not UTF-8 come back as U+FFFD.
[[nodiscard]] std::string write_chat_message(const ChatMessage& message);

// The line that separates a conversation from the next in a history file.
inline constexpr std::string_view kHistoryReset = R"({"reset":true})";

// A conversation as a history file holds it.
struct ChatHistory {
  std::vector<ChatMessage> messages;  // since the last reset
  ChatOptions options;                // of the line {"options": ...}; thinking is not among them
};

// Reads JSON lines (docs/chat.md). Throws Error(kUserFile) naming the file and the line that is
// malformed.
[[nodiscard]] ChatHistory read_chat_history(const NamedText& file);

}  // namespace k3

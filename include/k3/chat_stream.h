// The assistant's message as the model emits it: its channels apart, no marker in any of them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "k3/chat.h"
#include "k3/text_stream.h"

namespace k3 {

enum class ChatChannel {
  kThinking,
  kResponse
};

// Text of a channel: whole characters, never empty.
using ChatSink = std::function<void(ChatChannel channel, std::string_view text)>;

// Reads generated ids behind the generation prefix. A marker begins with the id of <|open|> or
// <|close|> and ends with that of <|sep|>: what stands between is its tag and is never shown, however
// it is split over ids, and whether or not it ends. Text that spells a marker without these ids is
// text. What belongs to neither channel (tools, text between channels) is not shown.
class ChatStream {
 public:
  // The encoder, with its tokenizer, must outlive it. `stops` end the text of either channel.
  ChatStream(const ChatEncoder& encoder, Thinking thinking, std::vector<std::string> stops = {});

  void push(std::int32_t id, const ChatSink& sink);

  // Shows what still waits: half a character, the beginning of a stop.
  void finish(const ChatSink& sink);

  // The stop that was found, as an index into `stops`.
  [[nodiscard]] const std::optional<std::size_t>& stopped() const noexcept {
    return stream_.stopped();
  }

  // The ids that make a whole message of what was pushed: the rest of a marker that was begun, the
  // missing close markers, <|end_of_msg|>. Nothing behind <|end_of_msg|> itself.
  [[nodiscard]] std::vector<std::int32_t> completion() const;

  // The message so far, for a history. Whole once completion() was pushed.
  [[nodiscard]] const ChatMessage& message() const noexcept { return message_; }

 private:
  enum class Tag {
    kNone,
    kOpen,
    kClose
  };

  void end_tag(const ChatSink& sink);
  void open(const std::string& tag);
  void close(const std::string& name);
  void text(std::string_view bytes, const ChatSink& sink);
  void show(std::string_view text, const ChatSink& sink);
  void end_value();
  [[nodiscard]] std::string rest_of_tag() const;

  const ChatEncoder& encoder_;
  TextStream stream_;                // of the channel that is open
  std::vector<std::string> opened_;  // names of the open tags, "message" first
  Tag tag_ = Tag::kNone;             // the kind of marker that has begun
  std::string tag_text_;             // of it, so far
  bool responded_ = false;           // the response was opened
  bool ended_ = false;               // <|end_of_msg|> was pushed
  std::string argument_key_;         // of the argument that is open
  std::string argument_type_;
  std::string value_;  // its text, or that of a call's raw JSON
  ChatMessage message_ = {.role = ChatRole::kAssistant};
};

}  // namespace k3

// --chat: turns of a conversation until the input ends.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "k3/engine.h"
#include "k3/tokenizer.h"

#include "cli/command_line.h"
#include "cli/progress.h"
#include "cli/run_record.h"
#include "cli/text_output.h"

namespace k3::cli {

// What the loop works with.
struct ChatContext {
  Engine& engine;
  const Tokenizer& tokenizer;
  const CommandLine& command;
  TextSink& sink;
  Progress& progress;
  const std::atomic<bool>* stop;
};

// Runs the chat. Throws what generating, reading and writing throw; an interruption ends the chat and
// is part of the record.
[[nodiscard]] RunRecord::Content run_chat(const ChatContext& context);

// Tokens that the chat may reach: --context, else kChatTokens more than its history has. Refuses what
// can be refused before the engine is opened: throws for a history that cannot be read, written or
// rendered, or that fills the context, and for a tokenizer without the markers of chats.
[[nodiscard]] std::size_t chat_positions(const Tokenizer& tokenizer, const CommandLine& command);

inline constexpr std::size_t kChatTokens = 4096;

// The ids of the chat's first prompt: the history, and a turn from standard input unless the history
// waits for an answer. Throws Error(kUsage) when there is neither.
[[nodiscard]] std::vector<std::int32_t> first_prompt_of_chat(const Tokenizer& tokenizer,
                                                             const CommandLine& command);

}  // namespace k3::cli

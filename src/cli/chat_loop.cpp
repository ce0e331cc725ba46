#include "cli/chat_loop.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "k3/atomic_file.h"
#include "k3/chat_stream.h"
#include "k3/errors.h"

#include "cli/history_file.h"
#include "cli/line_input.h"

namespace k3::cli {
namespace {

// The messages of the chat and what of them is on disk.
class Talk {
 public:
  explicit Talk(const CommandLine& command) : thinking_(command.thinking) {
    if (command.history) {
      file_.emplace(*command.history);
      messages_ = file_->conversation().messages;
      options_ = file_->conversation().options;
      written_ = messages_.size();
    }
    options_.thinking = thinking_;
    if (command.system) {
      put_system(*command.system);
    }
  }

  [[nodiscard]] const std::vector<ChatMessage>& messages() const { return messages_; }

  [[nodiscard]] const ChatOptions& options() const { return options_; }

  [[nodiscard]] const std::optional<HistoryFile>& file() const { return file_; }

  void add(ChatMessage message) { messages_.push_back(std::move(message)); }

  // Takes back what add() added last.
  void drop_last() { messages_.pop_back(); }

  // The last message is one that the assistant answers.
  [[nodiscard]] bool waits_for_answer() const {
    return !messages_.empty() &&
           (messages_.back().role == ChatRole::kUser || messages_.back().role == ChatRole::kTool);
  }

  // Forgets all but the system message of the command line.
  void reset() {
    if (written_ > 0) {
      reset_line_ = std::string(kHistoryReset) + "\n";
    }
    messages_.resize(system_given_ ? 1 : 0);
    options_ = {.thinking = thinking_};
    written_ = 0;
  }

  // Brings the history up to date.
  void write() {
    if (file_) {
      file_->append(reset_line_ + lines(written_));
      reset_line_.clear();
      written_ = messages_.size();
    }
  }

  // The whole conversation into a file of its own.
  void save(const std::filesystem::path& path) const {
    AtomicFile file(path);
    file.write(lines(0));
    file.commit();
  }

 private:
  // First in the conversation. The history may have it already.
  void put_system(const std::string& text) {
    system_given_ = true;
    const ChatMessage system = text_message(ChatRole::kSystem, text);
    const bool there = !messages_.empty() && messages_.front().role == ChatRole::kSystem &&
                       messages_.front().tools.empty();
    if (there && messages_.front() != system) {
      throw Error(ErrorKind::kUserFile,
                  "--system differs from the system message of the history: leave it out, or begin "
                  "another history");
    }
    if (!there) {
      // A file that has messages already cannot take it: it would stand behind them.
      written_ += messages_.empty() ? 0U : 1U;
      messages_.insert(messages_.begin(), system);
    }
  }

  [[nodiscard]] std::string lines(std::size_t from) const {
    std::string text;
    for (std::size_t i = from; i < messages_.size(); ++i) {
      text += write_chat_message(messages_[i]) + "\n";
    }
    return text;
  }

  Thinking thinking_;
  std::optional<HistoryFile> file_;
  std::vector<ChatMessage> messages_;
  ChatOptions options_;
  std::size_t written_ = 0;  // messages that the history has, or cannot take
  std::string reset_line_;   // of a reset that it does not have yet
  bool system_given_ = false;
};

// Shows thinking and answer apart; with --quiet the answer alone.
class ChannelOutput {
 public:
  explicit ChannelOutput(TextSink& sink) : sink_(sink) {}

  void show(ChatChannel channel, std::string_view text) {
    if (sink_.quiet() && channel == ChatChannel::kThinking) {
      return;
    }
    if (channel_ != channel && !sink_.quiet()) {
      sink_.write(channel_ ? "\n" : "");
      sink_.write(channel == ChatChannel::kThinking ? "--- thinking ---\n" : "--- answer ---\n");
    }
    channel_ = channel;
    sink_.write(text);
  }

  void end() { sink_.write(channel_ || sink_.quiet() ? "\n" : ""); }

 private:
  TextSink& sink_;
  std::optional<ChatChannel> channel_;
};

class ChatLoop {
 public:
  explicit ChatLoop(const ChatContext& context)
      : context_(context),
        encoder_(context.tokenizer),
        talk_(context.command),
        end_ids_(context.tokenizer.end_ids().begin(), context.tokenizer.end_ids().end()) {
    end_ids_.insert(end_ids_.end(), context.command.stop_ids.begin(),
                    context.command.stop_ids.end());
  }

  RunRecord::Content run() {
    LineInput input("> ", context_.stop);
    bool open = !talk_.waits_for_answer() || answer();
    while (open) {
      std::optional<std::string> line = input.read();
      if (context_.stop->load(std::memory_order_relaxed)) {
        record_.interrupted = true;
        break;
      }
      open = line && take(*line);
    }
    record_.layers = context_.engine.config().num_hidden_layers;
    return std::move(record_);
  }

 private:
  // One line of the user; false when it ends the chat.
  bool take(const std::string& line) {
    if (line == "/exit") {
      return false;
    }
    if (line == "/reset") {
      talk_.reset();
      session_.reset();
      ids_.clear();
      seen_ = 0;
    } else if (line == "/save" || line.starts_with("/save ")) {
      save(line.size() > 6 ? line.substr(6) : std::string());
    } else if (!line.empty()) {
      talk_.add(text_message(ChatRole::kUser, line));
      return answer();
    }
    return true;
  }

  // A failure is told and changes nothing.
  void save(const std::string& path) {
    try {
      if (!path.empty()) {
        talk_.save(path);
        std::fprintf(stderr, "k3: saved to %s\n", path.c_str());
      } else if (talk_.file()) {
        talk_.write();
        std::fprintf(stderr, "k3: saved to %s\n", talk_.file()->path().c_str());
      } else {
        std::fprintf(stderr, "k3: /save FILE names the file, there is no --history\n");
      }
    } catch (const Error& error) {
      std::fprintf(stderr, "k3: not saved: %s\n", error.what());
    }
  }

  // The ids that the messages since the last answer add.
  std::vector<std::int32_t> new_ids() {
    const auto fresh = std::span<const ChatMessage>(talk_.messages()).subspan(seen_);
    return ids_.empty() ? encoder_.encode(fresh, talk_.options())
                        : encoder_.encode_turn(fresh, talk_.options());
  }

  GenerateResult generate_turn(const GenerateOptions& options) {
    if (options.full_recompute) {
      return generate(context_.engine, ids_, options);
    }
    if (!session_) {
      session_.emplace(context_.engine.new_session());
    }
    return generate(context_.engine, *session_, ids_, options);
  }

  // The assistant's turn; false when it was interrupted.
  bool answer() {
    RunRecord::Turn turn;
    turn.new_ids = new_ids();
    const std::size_t positions = context_.engine.memory_plan().positions;
    if (ids_.size() + turn.new_ids.size() >= positions) {
      std::fprintf(stderr,
                   "k3: no room for this turn: the chat would reach %zu of %zu tokens (--context); "
                   "/reset begins a new one\n",
                   ids_.size() + turn.new_ids.size(), positions);
      talk_.drop_last();
      return true;
    }
    ids_.insert(ids_.end(), turn.new_ids.begin(), turn.new_ids.end());
    ChatStream stream(encoder_, talk_.options().thinking, context_.command.stops);
    ChannelOutput output(context_.sink);
    const ChatSink sink = [&](ChatChannel channel, std::string_view text) {
      output.show(channel, text);
    };
    const CommandLine& command = context_.command;
    const std::size_t room = positions - ids_.size();
    const GenerateResult result =
        generate_turn({.max_new_tokens = command.gen_given ? std::min(command.gen, room) : room,
                       .full_recompute = command.full_recompute,
                       .chunk = command.chunk,
                       .sampling = command.sampling,
                       .stop_ids = end_ids_,
                       .until =
                           [&](std::int32_t token) {
                             stream.push(token, sink);
                             return stream.stopped().has_value();
                           },
                       .on_step =
                           [&](const GenerateStep& step) {
                             turn.tokens_run += step.tokens_run;
                             context_.progress.finish();
                           },
                       .on_prompt = prompt_progress(context_.progress),
                       .stop = context_.stop});
    context_.progress.finish();
    stream.finish(sink);
    output.end();
    report(result, stream, turn);
    if (result.interrupted()) {
      record_.interrupted = true;
      return false;
    }
    keep(result.generated, stream, turn);
    return true;
  }

  void report(const GenerateResult& result, const ChatStream& stream, RunRecord::Turn& turn) {
    const std::size_t count = result.generated.size();
    const double average = count == 0 ? 0.0 : result.seconds / static_cast<double>(count);
    std::printf("turn: %zu new ids, %zu tokens in %.3f s, %.4f s/token average; stopped by %s\n\n",
                turn.new_ids.size(), count, result.seconds, average,
                stop_reason(result, context_.command, stream.stopped()).c_str());
    std::fflush(stdout);
    record_.prompt_ids = ids_;
    record_.generated_ids = result.generated;
    record_.seconds_per_token = average;
    record_.stop = stop_name(result);
    turn.generated_ids = result.generated;
  }

  // The answer becomes part of the conversation: as it was generated, with what it lacks. An end id
  // other than <|end_of_msg|> is a sign and no part of the message.
  void keep(const std::vector<std::int32_t>& generated, ChatStream& stream, RunRecord::Turn& turn) {
    const std::int32_t last = generated.back();
    ids_.insert(ids_.end(), generated.begin(), generated.end());
    if (last == encoder_.markers().end_of_message) {
      stream.push(last, {});
    } else if (std::find(end_ids_.begin(), end_ids_.end(), last) != end_ids_.end()) {
      ids_.pop_back();
    }
    turn.completion_ids = stream.completion();
    for (const std::int32_t id : turn.completion_ids) {
      stream.push(id, {});
      ids_.push_back(id);
    }
    record_.turns.push_back(std::move(turn));
    talk_.add(stream.message());
    talk_.write();
    seen_ = talk_.messages().size();
  }

  ChatContext context_;
  ChatEncoder encoder_;
  Talk talk_;
  std::vector<std::int32_t> end_ids_;
  std::optional<Session> session_;
  std::vector<std::int32_t> ids_;  // of the conversation: rendered, generated, completed
  std::size_t seen_ = 0;           // messages that they hold
  RunRecord::Content record_;
};

}  // namespace

RunRecord::Content run_chat(const ChatContext& context) {
  return ChatLoop(context).run();
}

std::size_t chat_positions(const Tokenizer& tokenizer, const CommandLine& command) {
  const Talk talk(command);
  if (talk.file()) {
    talk.file()->require_writable();
  }
  const std::size_t history = ChatEncoder(tokenizer).encode(talk.messages(), talk.options()).size();
  if (command.context && *command.context <= history) {
    throw Error(ErrorKind::kUsage, {.what = "the history fills the context (tokens)",
                                    .where = "--context",
                                    .expected = "more than " + std::to_string(history),
                                    .found = std::to_string(*command.context)});
  }
  return command.context.value_or(history + kChatTokens);
}

std::vector<std::int32_t> first_prompt_of_chat(const Tokenizer& tokenizer,
                                               const CommandLine& command) {
  const ChatEncoder encoder(tokenizer);
  Talk talk(command);
  if (!talk.waits_for_answer()) {
    const std::optional<std::string> line = LineInput("> ", nullptr).read();
    if (line && !line->empty()) {
      talk.add(text_message(ChatRole::kUser, *line));
    }
  }
  if (talk.messages().empty()) {
    throw Error(ErrorKind::kUsage, "the chat is empty: no history, and no turn on standard input");
  }
  return encoder.encode(talk.messages(), talk.options());
}

}  // namespace k3::cli

// The text on standard output, as it is generated.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "k3/generate.h"
#include "k3/text_stream.h"
#include "k3/tokenizer.h"

#include "cli/command_line.h"

namespace k3::cli {

// Standard output for the text alone. With --quiet the report, which is printed to stdout, goes
// nowhere from then on, and the text to where standard output was.
class TextSink {
 public:
  explicit TextSink(bool quiet);

  // Writes and flushes.
  void write(std::string_view text);

  // Throws Error(kIo) when something could not be written.
  void finish();

  [[nodiscard]] bool quiet() const { return own_ != nullptr; }

 private:
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> own_;  // with --quiet
  bool terminal_;
  bool line_open_ = false;  // the text so far does not end with a line end
};

// The text of one generation, between the lines of its block unless the sink is quiet.
class TextBlock {
 public:
  TextBlock(TextSink& sink, const Tokenizer& tokenizer, std::vector<std::string> stops);
  TextBlock(const TextBlock&) = delete;
  TextBlock& operator=(const TextBlock&) = delete;

  // What was generated before an error is shown as well.
  ~TextBlock() { end(); }

  void begin();

  // Shows what the token completes; true when a stop is found. Only between begin() and end().
  bool push(std::int32_t token);

  // Shows what still waits and ends the block, once. Nothing when it has not begun.
  void end();

  [[nodiscard]] const std::optional<std::size_t>& stopped() const { return stream_.stopped(); }

 private:
  TextSink& sink_;
  const Tokenizer& tokenizer_;
  TextStream stream_;
  bool open_ = false;
};

// "the cap of 8 tokens (--gen)", "id 163586", "the text \"...\"", "Ctrl-C". `stopped` is the index of
// the text that stopped it.
[[nodiscard]] std::string stop_reason(const GenerateResult& result,
                                      const CommandLine& command,
                                      const std::optional<std::size_t>& stopped);

// The same in one word: "cap", "stop_id", "stop_text", "interrupted".
[[nodiscard]] const char* stop_name(const GenerateResult& result);

}  // namespace k3::cli

#include "cli/text_output.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "k3/errors.h"

namespace k3::cli {
namespace {

[[noreturn]] void fail(int reason) {
  throw Error(ErrorKind::kIo, {.what = "cannot be written",
                               .where = "standard output",
                               .found = std::generic_category().message(reason)});
}

std::FILE* take_standard_output() {
  const int copy = dup(STDOUT_FILENO);
  std::FILE* const file = copy < 0 ? nullptr : fdopen(copy, "wb");
  if (file == nullptr || std::freopen("/dev/null", "wb", stdout) == nullptr) {
    fail(errno);
  }
  return file;
}

}  // namespace

TextSink::TextSink(bool quiet)
    : own_(quiet ? take_standard_output() : nullptr, std::fclose),
      terminal_(isatty(own_ ? fileno(own_.get()) : STDOUT_FILENO) == 1) {}

void TextSink::write(std::string_view text) {
  std::FILE* const file = own_ ? own_.get() : stdout;
  std::fwrite(text.data(), 1, text.size(), file);
  std::fflush(file);
  line_open_ = text.empty() ? line_open_ : text.back() != '\n';
}

void TextSink::finish() {
  if (!own_) {
    return;  // stdout is flushed and judged at the end of the program
  }
  if (terminal_ && line_open_) {
    write("\n");  // a shell's prompt belongs on a line of its own
  }
  if (std::fflush(own_.get()) != 0 || std::ferror(own_.get()) != 0) {
    fail(errno);
  }
}

TextBlock::TextBlock(TextSink& sink, const Tokenizer& tokenizer, std::vector<std::string> stops)
    : sink_(sink), tokenizer_(tokenizer), stream_(std::move(stops)) {}

void TextBlock::begin() {
  open_ = true;
  if (!sink_.quiet()) {
    sink_.write("--- generated text ---\n");
  }
}

bool TextBlock::push(std::int32_t token) {
  sink_.write(stream_.push(tokenizer_.decode(token)));
  return stream_.stopped().has_value();
}

void TextBlock::end() {
  if (!std::exchange(open_, false)) {
    return;
  }
  sink_.write(stream_.finish());
  if (!sink_.quiet()) {
    sink_.write("\n----------------------\n");
  }
}

std::string stop_reason(const GenerateResult& result,
                        const CommandLine& command,
                        const std::optional<std::size_t>& stopped) {
  switch (result.reason) {
    case StopReason::kCap:
      return command.chat && !(command.gen_given && result.generated.size() == command.gen)
                 ? std::string("the end of the context (--context)")
                 : "the cap of " + std::to_string(result.generated.size()) + " tokens (--gen)";
    case StopReason::kStopId:
      return "id " + std::to_string(result.generated.back());
    case StopReason::kUntil:
      return "the text \"" + command.stops[stopped.value()] + "\"";
    case StopReason::kInterrupted:
      break;
  }
  return "Ctrl-C";
}

const char* stop_name(const GenerateResult& result) {
  constexpr std::array<const char*, 4> kNames = {"cap", "stop_id", "stop_text", "interrupted"};
  return kNames[static_cast<std::size_t>(result.reason)];
}

}  // namespace k3::cli

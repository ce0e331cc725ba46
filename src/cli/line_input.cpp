#include "cli/line_input.h"

#include <unistd.h>

#include <array>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cwchar>
#include <utility>

#include <poll.h>

#ifdef K3_LIBEDIT
#include <histedit.h>
#endif

namespace k3::cli {

// Standard input, byte by byte. It looks at `stop` before it waits and while it does: a signal that
// comes in between is not missed, as one that has to interrupt read() would be.
class LineInput::Bytes {
 public:
  explicit Bytes(const std::atomic<bool>* stop) : stop_(stop) {}

  // Nothing at the end of the input, on an error and when stopped.
  std::optional<char> next() {
    if (at_ == count_ && !fill()) {
      return std::nullopt;
    }
    return buffer_[at_++];
  }

 private:
  bool fill() {
    constexpr int kMilliseconds = 100;
    pollfd input = {STDIN_FILENO, POLLIN, 0};
    while (stop_ == nullptr || !stop_->load(std::memory_order_relaxed)) {
      if (poll(&input, 1, kMilliseconds) > 0) {
        const ssize_t count = ::read(STDIN_FILENO, buffer_.data(), buffer_.size());
        at_ = 0;
        count_ = count > 0 ? static_cast<std::size_t>(count) : 0;
        return count > 0;
      }
    }
    return false;
  }

  const std::atomic<bool>* stop_;
  std::array<char, 4096> buffer_ = {};
  std::size_t at_ = 0;
  std::size_t count_ = 0;
};

#ifdef K3_LIBEDIT

// libedit's state. Its functions take variable arguments: the types are those of editline(3).
struct LineInput::Editor {
  Editor(std::string text, Bytes& input)
      : prompt(std::move(text)), bytes(input), history(history_init()), edit(start()) {
    constexpr int kRemembered = 1000;
    HistEvent event = {};
    ::history(history, &event, H_SETSIZE, kRemembered);
    ::history(history, &event, H_SETUNIQUE, 1);
    el_set(edit, EL_CLIENTDATA, this);
    el_set(edit, EL_PROMPT, &Editor::show_prompt);
    el_set(edit, EL_GETCFN, &Editor::read_character);
    el_set(edit, EL_EDITOR, "emacs");
    el_set(edit, EL_HIST, ::history, history);
    el_source(edit, nullptr);  // the user's ~/.editrc, where there is one
  }

  Editor(const Editor&) = delete;
  Editor& operator=(const Editor&) = delete;

  ~Editor() {
    el_end(edit);
    history_end(history);
  }

  // libedit edits characters of the locale. One without UTF-8 would cut them into bytes.
  static EditLine* start() {
    std::setlocale(LC_CTYPE, "");
    if (MB_CUR_MAX == 1) {
      std::setlocale(LC_CTYPE, "C.UTF-8");
    }
    return el_init("k3", stdin, stderr, stderr);
  }

  static Editor& of(EditLine* edit) {
    void* data = nullptr;
    el_get(edit, EL_CLIENTDATA, &data);
    return *static_cast<Editor*>(data);
  }

  static char* show_prompt(EditLine* edit) { return of(edit).prompt.data(); }

  // 1 with a character, 0 at the end. Bytes that are no character are passed over.
  static int read_character(EditLine* edit, wchar_t* character) {
    constexpr auto kBroken = static_cast<std::size_t>(-1);
    constexpr auto kUnfinished = static_cast<std::size_t>(-2);
    std::mbstate_t state = {};
    while (const std::optional<char> byte = of(edit).bytes.next()) {
      std::size_t used = std::mbrtowc(character, &*byte, 1, &state);
      if (used == kBroken) {  // the byte may begin the next character
        state = {};
        used = std::mbrtowc(character, &*byte, 1, &state);
      }
      if (used == kBroken) {
        state = {};
      } else if (used != kUnfinished) {
        return 1;
      }
    }
    return 0;
  }

  [[nodiscard]] std::optional<std::string> read() const {
    int count = 0;
    el_set(edit, EL_PREP_TERM, 1);  // before the prompt, which may be answered at once
    const char* const line = el_gets(edit, &count);
    if (line == nullptr || count <= 0) {
      return std::nullopt;
    }
    std::string text(line, static_cast<std::size_t>(count));
    if (text.ends_with('\n')) {
      text.pop_back();
    }
    if (!text.empty()) {
      HistEvent event = {};
      ::history(history, &event, H_ENTER, line);
    }
    return text;
  }

  std::string prompt;
  Bytes& bytes;
  History* history;
  EditLine* edit;
};

#else

// Without libedit the terminal itself edits, within its line.
struct LineInput::Editor {
  Editor(std::string text, Bytes& /*input*/) : prompt(std::move(text)) {}

  std::string prompt;
};

#endif

LineInput::LineInput(std::string prompt, const std::atomic<bool>* stop)
    : bytes_(std::make_unique<Bytes>(stop)) {
  if (isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1) {
    editor_ = std::make_unique<Editor>(std::move(prompt), *bytes_);
  }
}

LineInput::~LineInput() = default;

std::optional<std::string> LineInput::read_plain() {
  std::string line;
  while (const std::optional<char> byte = bytes_->next()) {
    if (*byte == '\n') {
      return line;
    }
    line += *byte;
  }
  return line.empty() ? std::nullopt : std::optional(line);
}

std::optional<std::string> LineInput::read() {
  if (!editor_) {
    return read_plain();
  }
#ifdef K3_LIBEDIT
  std::optional<std::string> line = editor_->read();
#else
  std::fputs(editor_->prompt.c_str(), stderr);
  std::optional<std::string> line = read_plain();
#endif
  if (!line) {
    std::fputs("\n", stderr);  // what comes next does not belong behind the prompt
  }
  return line;
}

}  // namespace k3::cli

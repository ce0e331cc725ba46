// Lines that the user types, edited where the terminal can do that, or lines of a pipe.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

namespace k3::cli {

class LineInput {
 public:
  // On a terminal (standard input and standard error both are one) `prompt` is shown before a line,
  // on standard error, and lines are edited and remembered. Waiting ends once `stop`, unless it is
  // nullptr, is true.
  LineInput(std::string prompt, const std::atomic<bool>* stop);
  LineInput(const LineInput&) = delete;
  LineInput& operator=(const LineInput&) = delete;
  ~LineInput();

  // The next line without its end, or nothing: the input has ended, or `stop` is true.
  [[nodiscard]] std::optional<std::string> read();

 private:
  class Bytes;
  struct Editor;

  [[nodiscard]] std::optional<std::string> read_plain();

  std::unique_ptr<Bytes> bytes_;
  std::unique_ptr<Editor> editor_;  // none for a pipe
};

}  // namespace k3::cli

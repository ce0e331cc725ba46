// How far a long copy is: a bar on a terminal, a line a layer elsewhere.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace k3::tools {

class Progress {
 public:
  enum class Style {
    kNone,
    kLines,
    kBar
  };

  // Writes to standard error.
  explicit Progress(Style style) : style_(style) {}

  // Ends the line of the bar.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  Progress(Progress&&) = delete;
  Progress& operator=(Progress&&) = delete;

  // kBar when standard error is a terminal, else kLines.
  [[nodiscard]] static Style style_of_stderr();

  // A new stage of `bytes` bytes in `layers` layers: "packing".
  void begin(std::string stage, std::uint64_t bytes, std::size_t layers);

  void advance(std::uint64_t bytes);

  void layer_done();

  // Ends the line of the bar, so that others can print.
  void finish() { end_line(); }

  // A line of its own; nothing with kNone.
  void say(const std::string& line);

 private:
  [[nodiscard]] std::string text() const;
  void draw();
  void end_line();

  using Clock = std::chrono::steady_clock;

  Style style_;
  std::string stage_;
  std::uint64_t total_bytes_ = 0;
  std::uint64_t done_bytes_ = 0;
  std::size_t layers_ = 0;
  std::size_t done_layers_ = 0;
  Clock::time_point begun_;
  Clock::time_point drawn_;
  std::size_t line_width_ = 0;  // of the bar's line that stands there
};

// "12 s", "3:05" (minutes), "1:02:03" (hours).
[[nodiscard]] std::string duration_text(double seconds);

}  // namespace k3::tools

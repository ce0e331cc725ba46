// Progress on standard error: a bar on a terminal, lines elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>

#include "k3/generate.h"

namespace k3::cli {

class Progress {
 public:
  struct Options {
    bool enabled = true;
    bool terminal = false;     // a bar that is drawn over itself, else lines
    std::size_t columns = 80;  // of the terminal
    std::FILE* out = stderr;
    std::function<double()> seconds = {};  // since any start; the steady clock when empty
  };

  explicit Progress(Options options);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  ~Progress() { finish(); }

  // On standard error as it is.
  static Options standard_error(bool enabled);

  // `share` of `what` is done, 0 to 1; `where` says how far, "layer 5/13". A bar is drawn at most ten
  // times a second; lines come every ten seconds, and one at the end.
  void show(std::string_view what, std::string_view where, double share);

  // What was shown is over, done or not: the bar is wiped off.
  void finish();

 private:
  void bar(std::string_view where, double share);
  void line(std::string_view where, double share);
  [[nodiscard]] std::string status(std::string_view where, double share) const;

  Options options_;
  std::string what_;  // empty between two things
  bool drawn_ = false;
  bool complete_ = false;
  double started_ = 0.0;
  double last_ = 0.0;
};

// What an engine and a generation tell, shown by `progress`, which must outlive the functions.
[[nodiscard]] std::function<void(std::uint64_t, std::uint64_t)> load_progress(Progress& progress);
[[nodiscard]] std::function<void(const PromptProgress&)> prompt_progress(Progress& progress);

}  // namespace k3::cli

#include "cli/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <utility>

namespace k3::cli {
namespace {

constexpr double kBarSeconds = 0.1;
constexpr double kLineSeconds = 10.0;
constexpr double kGigabyte = 1e9;

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// "0:07", "12:00", "3:02:10"
std::string clock_text(double seconds) {
  const auto whole = static_cast<unsigned long>(std::lround(seconds));
  std::array<char, 40> text = {};
  if (whole >= 3600) {
    std::snprintf(text.data(), text.size(), "%lu:%02lu:%02lu", whole / 3600, whole / 60 % 60,
                  whole % 60);
  } else {
    std::snprintf(text.data(), text.size(), "%lu:%02lu", whole / 60, whole % 60);
  }
  return text.data();
}

}  // namespace

Progress::Progress(Options options) : options_(std::move(options)) {
  if (!options_.seconds) {
    options_.seconds = steady_seconds;
  }
}

Progress::Options Progress::standard_error(bool enabled) {
  Options options = {.enabled = enabled, .terminal = isatty(STDERR_FILENO) == 1};
  winsize size = {};
  if (options.terminal && ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    options.columns = size.ws_col;
  }
  return options;
}

void Progress::show(std::string_view what, std::string_view where, double share) {
  if (!options_.enabled) {
    return;
  }
  const double now = options_.seconds();
  bool begins = false;
  if (what_ != what) {
    finish();
    what_ = what;
    started_ = now;
    last_ = now;
    complete_ = false;
    begins = true;
  }
  const bool ends = share >= 1.0 && !complete_;
  if (!ends && !(begins && options_.terminal) &&
      now - last_ < (options_.terminal ? kBarSeconds : kLineSeconds)) {
    return;
  }
  last_ = now;
  complete_ = share >= 1.0;
  if (options_.terminal) {
    bar(where, share);
  } else {
    line(where, share);
  }
}

void Progress::finish() {
  if (std::exchange(drawn_, false)) {
    std::fputs("\r\x1B[K", options_.out);  // to the end of the line
    std::fflush(options_.out);
  }
  what_.clear();
}

// "layer 5/13, 38%, ETA 0:07"; the time that it took once all is done.
std::string Progress::status(std::string_view where, double share) const {
  const double elapsed = options_.seconds() - started_;
  std::string text(where);
  text += ", " + std::to_string(static_cast<int>(share * 100.0)) + "%";
  if (share >= 1.0) {
    return text + ", " + clock_text(elapsed);
  }
  return text + ", ETA " +
         (share > 0.0 ? clock_text(elapsed * (1.0 - share) / share) : std::string("-:--"));
}

void Progress::bar(std::string_view where, double share) {
  constexpr std::size_t kMostCells = 30;
  std::string text = what_ + " ";
  const std::string end = " " + status(where, share);
  const std::size_t taken = text.size() + end.size() + 3;  // two brackets, the last column
  const std::size_t cells =
      taken < options_.columns ? std::min(kMostCells, options_.columns - taken) : 0;
  if (cells >= 3) {
    const auto full = static_cast<std::size_t>(share * static_cast<double>(cells));
    text += "[" + std::string(full, '#') + std::string(cells - full, '.') + "]";
  }
  text = (text + end).substr(0, options_.columns - 1);
  std::fprintf(options_.out, "\r%s\x1B[K", text.c_str());
  std::fflush(options_.out);
  drawn_ = true;
}

void Progress::line(std::string_view where, double share) {
  std::fprintf(options_.out, "k3: %s: %s\n", what_.c_str(), status(where, share).c_str());
  std::fflush(options_.out);
}

std::function<void(std::uint64_t, std::uint64_t)> load_progress(Progress& progress) {
  return [&progress](std::uint64_t done, std::uint64_t total) {
    std::array<char, 64> where = {};
    std::snprintf(where.data(), where.size(), "%.3f of %.3f GB",
                  static_cast<double>(done) / kGigabyte, static_cast<double>(total) / kGigabyte);
    progress.show("loading weights", where.data(),
                  total == 0 ? 1.0 : static_cast<double>(done) / static_cast<double>(total));
  };
}

std::function<void(const PromptProgress&)> prompt_progress(Progress& progress) {
  return [&progress](const PromptProgress& now) {
    const std::size_t layers = now.layers / now.chunks;
    std::string where = "layer " + std::to_string(now.layer) + "/" + std::to_string(layers);
    if (now.chunks > 1) {
      where += " of chunk " + std::to_string(now.chunk) + "/" + std::to_string(now.chunks);
    }
    progress.show("reading the prompt", where,
                  static_cast<double>(now.layers_done) / static_cast<double>(now.layers));
  };
}

}  // namespace k3::cli

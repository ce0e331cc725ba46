#include "progress.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <utility>

namespace k3::tools {
namespace {

constexpr std::chrono::milliseconds kBetweenDrawings{200};
constexpr std::size_t kBarCells = 16;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

std::string duration_text(double seconds) {
  constexpr double kLongest = 359'999.0;  // 99:59:59
  const auto whole = static_cast<unsigned>(std::lround(std::clamp(seconds, 0.0, kLongest)));
  std::array<char, 32> text = {};
  if (whole < 60) {
    std::snprintf(text.data(), text.size(), "%u s", whole);
  } else if (whole < 3600) {
    std::snprintf(text.data(), text.size(), "%u:%02u", whole / 60, whole % 60);
  } else {
    std::snprintf(text.data(), text.size(), "%u:%02u:%02u", whole / 3600, whole / 60 % 60,
                  whole % 60);
  }
  return text.data();
}

Progress::~Progress() {
  end_line();
}

Progress::Style Progress::style_of_stderr() {
  return ::isatty(STDERR_FILENO) == 1 ? Style::kBar : Style::kLines;
}

void Progress::begin(std::string stage, std::uint64_t bytes, std::size_t layers) {
  end_line();
  stage_ = std::move(stage);
  total_bytes_ = bytes;
  done_bytes_ = 0;
  layers_ = layers;
  done_layers_ = 0;
  begun_ = Clock::now();
  drawn_ = begun_ - kBetweenDrawings;
}

void Progress::advance(std::uint64_t bytes) {
  done_bytes_ += bytes;
  if (style_ == Style::kBar &&
      (done_bytes_ == total_bytes_ || Clock::now() - drawn_ >= kBetweenDrawings)) {
    draw();
  }
}

void Progress::layer_done() {
  ++done_layers_;
  if (style_ == Style::kLines) {
    std::fprintf(stderr, "%s\n", text().c_str());
  } else if (style_ == Style::kBar && done_layers_ == layers_) {
    draw();
  }
}

void Progress::say(const std::string& line) {
  if (style_ != Style::kNone) {
    end_line();
    std::fprintf(stderr, "%s\n", line.c_str());
  }
}

std::string Progress::text() const {
  const double total = std::max(static_cast<double>(total_bytes_), 1.0);
  const auto done = static_cast<double>(done_bytes_);
  const double speed = done / std::max(seconds_since(begun_), 1e-6);
  std::array<char, 160> line = {};
  std::snprintf(line.data(), line.size(), "layer %zu/%zu  %5.1f%%  %.2f/%.2f GB  %.2f GB/s  ETA %s",
                done_layers_, layers_, 100.0 * done / total, done / 1e9, total / 1e9, speed / 1e9,
                speed > 0.0 ? duration_text((total - done) / speed).c_str() : "?");
  return stage_ + ": " + line.data();
}

void Progress::draw() {
  drawn_ = Clock::now();
  const double share =
      static_cast<double>(done_bytes_) / std::max(static_cast<double>(total_bytes_), 1.0);
  const auto full = static_cast<std::size_t>(share * kBarCells);
  std::string line =
      "[" + std::string(full, '#') + std::string(kBarCells - full, '.') + "] " + text();
  const std::size_t width = line.size();
  line.resize(std::max(width, line_width_), ' ');  // over what stood there
  line_width_ = width;
  std::fprintf(stderr, "\r%s", line.c_str());
  std::fflush(stderr);
}

void Progress::end_line() {
  if (std::exchange(line_width_, 0) > 0) {
    std::fputc('\n', stderr);
  }
}

}  // namespace k3::tools

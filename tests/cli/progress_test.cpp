// Progress with a clock of the test's own.

#include "cli/progress.h"

#include <cstdio>
#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

namespace k3::cli {
namespace {

class ProgressTest : public testing::Test {
 protected:
  void TearDown() override {
    std::fclose(file_);
    std::free(text_);
  }

  Progress::Options options(bool terminal, std::size_t columns = 80) {
    return {
        .terminal = terminal, .columns = columns, .out = file_, .seconds = [this] { return now_; }};
  }

  std::string shown() {
    std::fflush(file_);
    return {text_, size_};
  }

  char* text_ = nullptr;
  std::size_t size_ = 0;
  std::FILE* file_ = open_memstream(&text_, &size_);
  double now_ = 100.0;
};

TEST_F(ProgressTest, ABarHasLayerPercentAndEta) {
  Progress progress(options(true));
  now_ += 20;
  progress.show("reading the prompt", "layer 1/4", 0.25);
  EXPECT_EQ(shown(),
            "\rreading the prompt [#######.......................] layer 1/4, 25%, ETA 0:00\x1B[K");
}

TEST_F(ProgressTest, TheEtaIsWhatTheRestTakesAtThisPace) {
  Progress progress(options(false));
  progress.show("x", "layer 0/8", 0.0);
  now_ += 3600;
  progress.show("x", "layer 2/8", 0.25);
  EXPECT_EQ(shown(), "k3: x: layer 2/8, 25%, ETA 3:00:00\n");
}

TEST_F(ProgressTest, ABarIsDrawnTenTimesASecondAndWipedOff) {
  Progress progress(options(true));
  progress.show("x", "a", 0.1);
  now_ += 0.05;
  progress.show("x", "b", 0.2);
  now_ += 0.06;
  progress.show("x", "c", 0.3);
  progress.finish();
  progress.finish();
  const std::string text = shown();
  EXPECT_EQ(text.find(" b,"), std::string::npos);
  EXPECT_NE(text.find(" c, 30%"), std::string::npos);
  EXPECT_TRUE(text.ends_with("\x1B[K\r\x1B[K"));
}

TEST_F(ProgressTest, ABarFitsItsTerminal) {
  for (const std::size_t columns : {10U, 40U, 60U, 200U}) {
    Progress progress(options(true, columns));
    progress.show("reading the prompt", "layer 10/93 of chunk 1/20", 0.5);
    std::string text = shown();
    text = text.substr(text.rfind('\r') + 1);
    EXPECT_LT(text.size() - 3, columns);
  }
}

TEST_F(ProgressTest, LinesComeEveryTenSecondsAndAtTheEnd) {
  Progress progress(options(false));
  for (int i = 0; i <= 25; ++i) {
    progress.show("x", std::to_string(i), i / 25.0);
    now_ += 1;
  }
  progress.show("x", "25", 1.0);  // said already
  progress.finish();
  EXPECT_EQ(shown(), "k3: x: 10, 40%, ETA 0:15\nk3: x: 20, 80%, ETA 0:05\nk3: x: 25, 100%, 0:25\n");
}

TEST_F(ProgressTest, EachThingHasItsOwnClock) {
  Progress progress(options(false));
  progress.show("a", "1", 1.0);
  now_ += 7;
  progress.show("b", "1", 1.0);
  EXPECT_EQ(shown(), "k3: a: 1, 100%, 0:00\nk3: b: 1, 100%, 0:00\n");
}

TEST_F(ProgressTest, SwitchedOffItSaysNothing) {
  Progress::Options off = options(true);
  off.enabled = false;
  Progress progress(off);
  progress.show("x", "a", 0.5);
  progress.finish();
  EXPECT_EQ(shown(), "");
}

TEST_F(ProgressTest, LoadAndPromptAreTold) {
  Progress progress(options(false));
  load_progress(progress)(2'500'000'000, 2'500'000'000);
  prompt_progress(progress)(
      {.tokens = 5, .chunks = 1, .chunk = 1, .layer = 13, .layers_done = 13, .layers = 13});
  EXPECT_EQ(shown(),
            "k3: loading weights: 2.500 of 2.500 GB, 100%, 0:00\n"
            "k3: reading the prompt: layer 13/13, 100%, 0:00\n");
}

}  // namespace
}  // namespace k3::cli

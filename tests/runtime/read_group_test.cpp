// A group's ranges arrive whole, once, in parts that all readers share, or fail together.
#include "runtime/read_group.h"

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/window_buffer.h"
#include "io/window_file.h"
#include "support/expect_error.h"
#include "support/faulty_file_system.h"
#include "support/paths.h"
#include "support/safetensors_builder.h"

namespace k3::runtime {
namespace {

using test::Faults;
using test::FaultyFileSystem;
using test::throws;

constexpr std::size_t kRequest = 2048;

class Waiter final : public ReadGroup::Listener {
 public:
  void on_complete(ReadGroup& /*group*/, std::exception_ptr error) noexcept override {
    const std::lock_guard lock(mutex_);
    error_ = std::move(error);
    ++completions_;
    changed_.notify_all();
  }

  // Waits for the next completion and throws its error.
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return completions_ > seen_; });
    ++seen_;
    if (error_ != nullptr) {
      std::rethrow_exception(std::exchange(error_, nullptr));
    }
  }

  [[nodiscard]] int completions() {
    const std::lock_guard lock(mutex_);
    return completions_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::exception_ptr error_;
  int completions_ = 0;
  int seen_ = 0;
};

class ReadGroupTest : public testing::Test {
 protected:
  ReadGroupTest() {
    for (std::size_t i = 0; i < 50'000; ++i) {
      content_ += static_cast<char>(i * 7 % 251);
    }
    test::write_file(dir_.path() / "weights.bin", content_);
  }

  using Ranges = std::vector<std::pair<std::size_t, std::size_t>>;  // offset, bytes

  // Adds ranges of the file, window behind window; where their payloads will be.
  std::vector<const std::byte*> add(ReadGroup& group,
                                    const WeightFile& source,
                                    const Ranges& ranges) {
    std::vector<const std::byte*> payloads;
    payloads.reserve(ranges.size());
    std::size_t at = 0;
    for (const auto& [offset, bytes] : ranges) {
      const FileRange range{&source, offset, bytes};
      payloads.push_back(group.add(range, buffer_.span().subspan(at)));
      at += (range.window().bytes + 511) / 512 * 512;
    }
    return payloads;
  }

  [[nodiscard]] bool arrived(const Ranges& ranges,
                             const std::vector<const std::byte*>& payloads) const {
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      const auto& [offset, bytes] = ranges[i];
      if (std::memcmp(payloads[i], content_.data() + offset, bytes) != 0) {
        return false;
      }
    }
    return true;
  }

  // Reads the ranges twice with one group.
  void expect_ranges(const Ranges& ranges, const Faults& faults = {}) {
    FaultyFileSystem file_system(faults);
    const WeightFile source = open(file_system);
    Waiter waiter;
    ReadGroup group(waiter, kRequest);
    for (int round = 1; round <= 2; ++round) {
      const std::vector<const std::byte*> payloads = add(group, source, ranges);
      group.submit(ErrorKind::kIo, ReadPriority::kTape);
      waiter.wait();
      EXPECT_TRUE(arrived(ranges, payloads));
      EXPECT_EQ(waiter.completions(), round);
      std::ranges::fill(buffer_.span(), std::byte{0});
    }
    EXPECT_LE(file_system.largest_request(), kRequest);
  }

  WeightFile open(FaultyFileSystem& file_system) {
    return {std::make_unique<io::WindowFile>(file_system, dir_.path() / "weights.bin",
                                             ErrorKind::kIo, io::WindowFileOptions{}),
            &pool_};
  }

  test::TempDir dir_;
  std::string content_;
  WindowBuffer buffer_{std::size_t{1} << 17U, 512};
  Waiter waiter_;
  ReaderPool pool_{2};
};

TEST_F(ReadGroupTest, ARangeOfAnyPlaceAndLengthArrives) {
  for (const std::size_t offset : {0U, 1U, 511U, 512U, 513U, 2047U, 2048U, 40'001U}) {
    for (const std::size_t bytes : {1U, 511U, 512U, 2048U, 2049U, 9'000U}) {
      expect_ranges({{offset, bytes}});
    }
  }
}

TEST_F(ReadGroupTest, SeveralRangesCompleteTogether) {
  expect_ranges({{1, 5000}, {5001, 1}, {20'000, 4096}, {49'999, 1}});
}

TEST_F(ReadGroupTest, ShortCountsAndInterruptionsChangeNothing) {
  expect_ranges({{3, 7000}, {30'001, 3000}}, {.max_read_bytes = 512, .interruptions_per_read = 2});
}

TEST_F(ReadGroupTest, BufferedReadsChangeNothing) {
  expect_ranges({{3, 7000}, {30'001, 3000}}, {.refuse_direct = true});
}

TEST_F(ReadGroupTest, OneFailedPartFailsTheGroupOnceAndItMayBeUsedAgain) {
  for (std::uint64_t failing = 1; failing <= 4; ++failing) {
    FaultyFileSystem file_system({.eio_on_read = failing});
    const WeightFile source = open(file_system);
    Waiter waiter;
    ReadGroup group(waiter, kRequest);
    std::byte* payload = group.add({&source, 100, 4 * kRequest - 200}, buffer_.span());
    group.submit(ErrorKind::kExpertIo, ReadPriority::kExpert);
    EXPECT_TRUE(throws(ErrorKind::kExpertIo, {"weights.bin"}, [&] { waiter.wait(); }));
    payload = group.add({&source, 100, 4 * kRequest - 200}, buffer_.span());
    group.submit(ErrorKind::kExpertIo, ReadPriority::kExpert);
    EXPECT_NO_THROW(waiter.wait());
    EXPECT_EQ(std::memcmp(payload, content_.data() + 100, 4 * kRequest - 200), 0);
    EXPECT_EQ(waiter.completions(), 2);
  }
}

TEST_F(ReadGroupTest, WhatNoReaderHasBegunIsTakenBack) {
  FaultyFileSystem file_system({});
  const WeightFile source = open(file_system);
  file_system.hold("weights.bin");
  ReadGroup group(waiter_, kRequest);
  group.add({&source, 0, 10 * kRequest}, buffer_.span());
  group.submit(ErrorKind::kIo, ReadPriority::kTape);
  file_system.wait_held(2);  // both readers are in a read
  group.abandon();
  EXPECT_EQ(waiter_.completions(), 0);
  file_system.release();
  EXPECT_TRUE(throws(ErrorKind::kInterrupted, {"taken back"}, [&] { waiter_.wait(); }));
  EXPECT_EQ(file_system.reads(), 2);
  group.abandon();  // of a group that is complete
  EXPECT_EQ(waiter_.completions(), 1);
}

TEST_F(ReadGroupTest, ABufferThatIsTooSmallIsRefused) {
  FaultyFileSystem file_system({});
  const WeightFile source = open(file_system);
  ReadGroup group(waiter_, kRequest);
  EXPECT_THROW(group.add({&source, 511, 2}, buffer_.span().first(512)), std::invalid_argument);
}

}  // namespace
}  // namespace k3::runtime

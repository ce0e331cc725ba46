#include "runtime/device_bandwidth.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "k3/errors.h"

#include "support/expect_error.h"
#include "support/faulty_file_system.h"
#include "support/paths.h"
#include "support/safetensors_builder.h"

namespace k3::runtime {
namespace {

using test::Faults;
using test::FaultyFileSystem;
using test::throws;

BandwidthSample sample(std::size_t readers,
                       std::size_t request_bytes,
                       std::uint64_t bytes,
                       bool direct = true) {
  return {.setting = {readers, request_bytes, direct},
          .pattern = ReadPattern::kMix,
          .seconds = 1.0,
          .payload_bytes = bytes};
}

TEST(BestSetting, IsTheFastestMix) {
  const std::vector<BandwidthSample> samples = {sample(1, 10, 100), sample(4, 10, 200),
                                                sample(8, 10, 150)};
  EXPECT_EQ(best_setting(samples).readers, 4U);
}

TEST(BestSetting, NoiseDoesNotBuyReadersOrMemory) {
  EXPECT_EQ(best_setting(std::vector{sample(1, 10, 98), sample(4, 10, 100)}).readers, 1U);
  EXPECT_EQ(best_setting(std::vector{sample(1, 10, 96), sample(4, 10, 100)}).readers, 4U);
  EXPECT_EQ(best_setting(std::vector{sample(2, 40, 100), sample(2, 10, 99)}).request_bytes, 10U);
  EXPECT_TRUE(best_setting(std::vector{sample(2, 10, 100, false), sample(2, 10, 98)}).direct);
  EXPECT_FALSE(best_setting(std::vector{sample(2, 10, 100, false), sample(2, 10, 90)}).direct);
}

TEST(BestSetting, OtherPatternsDecideNothing) {
  std::vector<BandwidthSample> samples = {sample(1, 10, 100), sample(8, 10, 900)};
  samples[1].pattern = ReadPattern::kTape;
  EXPECT_EQ(best_setting(samples).readers, 1U);
  samples.erase(samples.begin());
  EXPECT_THROW(static_cast<void>(best_setting(samples)), std::invalid_argument);
}

class DeviceBandwidthTest : public testing::Test {
 protected:
  DeviceBandwidthTest() {
    options_.sample_seconds = 0.002;
    options_.readers = {1, 3};
    options_.request_bytes = {4096, 10000};
    options_.expert_bytes = 25000;
    for (const char* name : {"a.bin", "b.bin"}) {
      files_.push_back(dir_.path() / name);
      test::write_file(files_.back(), std::string(300'001, 'x'));
    }
  }

  BandwidthReport measure(const Faults& faults) {
    FaultyFileSystem file_system(faults);
    BandwidthReport report = measure_bandwidth(file_system, files_, options_);
    direct_reads_ = file_system.direct_reads();
    largest_request_ = file_system.largest_request();
    return report;
  }

  test::TempDir dir_;
  std::vector<std::filesystem::path> files_;
  BandwidthOptions options_;
  int direct_reads_ = 0;
  std::size_t largest_request_ = 0;
};

TEST_F(DeviceBandwidthTest, MeasuresReadersThenRequestsThenTheCacheThenThePatterns) {
  const BandwidthReport report = measure({});
  ASSERT_EQ(report.samples.size(), 2U + 1 + 1 + 3);
  EXPECT_EQ(report.samples[0].setting.readers, 1U);
  EXPECT_EQ(report.samples[1].setting.readers, 3U);
  EXPECT_EQ(report.samples[2].setting.request_bytes, 4096U);
  EXPECT_FALSE(report.samples[3].setting.direct);
  for (const BandwidthSample& one : report.samples) {
    EXPECT_GE(one.seconds, 0.002);
    EXPECT_GT(one.payload_bytes, 0U);
  }
  EXPECT_EQ(report.samples[5].pattern, ReadPattern::kTape);
  EXPECT_EQ(report.tape_bytes_per_second, report.samples[5].bytes_per_second());
  EXPECT_EQ(report.experts_bytes_per_second, report.samples[6].bytes_per_second());
  EXPECT_EQ(report.alignment, 512U);
  EXPECT_EQ(report.direct_refused, "");
  EXPECT_LE(largest_request_, 10000U + 2 * 512);  // experts are cut into requests too
}

TEST_F(DeviceBandwidthTest, GridMeasuresEveryCombination) {
  options_.whole_grid = true;
  const BandwidthReport report = measure({});
  EXPECT_EQ(report.samples.size(), 2U * 2 * 2 + 3);
}

TEST_F(DeviceBandwidthTest, RefusedDirectAccessIsSaidAndMeasuredBuffered) {
  for (const Faults& faults :
       {Faults{.refuse_direct = true}, Faults{.refuse_direct_reads = true}}) {
    const BandwidthReport report = measure(faults);
    EXPECT_NE(report.direct_refused.find("Invalid argument"), std::string::npos);
    EXPECT_TRUE(std::none_of(report.samples.begin(), report.samples.end(),
                             [](const BandwidthSample& one) { return one.setting.direct; }));
    EXPECT_FALSE(report.best.direct);
    EXPECT_LE(direct_reads_, 1);
  }
}

TEST_F(DeviceBandwidthTest, DepthIsTheNumberOfReaders) {
  FaultyFileSystem file_system({});
  options_.readers = {3};
  options_.direct = false;
  file_system.hold(".bin");
  std::thread measuring(
      [&] { static_cast<void>(measure_bandwidth(file_system, files_, options_)); });
  file_system.wait_held(3);
  file_system.release();
  measuring.join();
}

TEST_F(DeviceBandwidthTest, ReadErrorsEndIt) {
  EXPECT_TRUE(
      throws(ErrorKind::kIo, {"Input/output error"}, [&] { measure({.eio_on_read = 20}); }));
}

TEST_F(DeviceBandwidthTest, NothingToReadIsAnError) {
  FaultyFileSystem file_system({});
  EXPECT_TRUE(throws(ErrorKind::kUsage, {"no file with bytes"},
                     [&] { static_cast<void>(measure_bandwidth(file_system, {}, options_)); }));
  test::write_file(files_[0], "");
  files_.resize(1);
  EXPECT_TRUE(throws(ErrorKind::kUsage, {"no file with bytes"}, [&] { measure({}); }));
  options_.readers.clear();
  files_ = {dir_.path() / "b.bin"};
  EXPECT_TRUE(throws(ErrorKind::kUsage, {"nothing to measure"}, [&] { measure({}); }));
}

// Small files wrap around; odd sizes leave short requests at their ends.
TEST_F(DeviceBandwidthTest, FilesSmallerThanARequestWork) {
  for (const std::filesystem::path& path : files_) {
    test::write_file(path, "abc");
  }
  const BandwidthReport report = measure({});
  EXPECT_GT(report.mix_bytes_per_second, 0.0);
}

}  // namespace
}  // namespace k3::runtime

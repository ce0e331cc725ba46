// Memory that control groups leave to the process: every shape that a kernel shows, and a real one.
// Over 400 lines because every shape of control groups has its test.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/cgroup.h"
#include "base/host.h"
#include "support/paths.h"

namespace k3 {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMountsV2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";
constexpr const char* kMountsV1 =
    "31 23 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
    "32 23 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
constexpr const char* kMeminfo = "MemTotal: 2000 kB\nMemFree: 10 kB\nMemAvailable: 1000 kB\n";
constexpr std::uint64_t kMemAvailable = 1'024'000;
constexpr const char* kNoLimitV1 = "9223372036854771712";  // whole pages of 4 KiB below 2^63

// A file system root as the kernel would show it.
class Root {
 public:
  Root() { file("proc/meminfo", kMeminfo); }

  void file(const fs::path& path, const std::string& content) const {
    fs::create_directories((dir_.path() / path).parent_path());
    std::ofstream(dir_.path() / path) << content << "\n";
  }

  void version2(const std::string& group) const {
    file("proc/self/mountinfo", kMountsV2);
    file("proc/self/cgroup", "0::" + group);
  }

  void version1(const std::string& group) const {
    file("proc/self/mountinfo", kMountsV1);
    file("proc/self/cgroup", "4:memory:" + group + "\n3:cpu:/elsewhere");
  }

  // A group of version 2; `directory` is relative to the root.
  void group2(const fs::path& directory,
              const std::string& max,
              const std::string& current,
              const std::string& stat = "anon 1\ninactive_file 0\nactive_file 0") const {
    file(directory / "memory.max", max);
    file(directory / "memory.current", current);
    file(directory / "memory.stat", stat);
  }

  void group1(const fs::path& directory,
              const std::string& limit,
              const std::string& usage,
              const std::string& stat = "cache 1") const {
    file(directory / "memory.limit_in_bytes", limit);
    file(directory / "memory.usage_in_bytes", usage);
    file(directory / "memory.stat", stat);
  }

  void expect(std::uint64_t bytes, const std::string& bound_by) const {
    const AvailableMemory found = available_memory(path());
    EXPECT_EQ(found.bytes, bytes);
    EXPECT_EQ(found.bound_by, bound_by);
  }

  [[nodiscard]] const fs::path& path() const { return dir_.path(); }

 private:
  test::TempDir dir_;
};

TEST(MemoryLimit, WithoutControlGroupsItIsMemAvailable) {
  const Root root;
  root.expect(kMemAvailable, "MemAvailable");
  EXPECT_TRUE(cgroup_memory_limits(root.path()).empty());
  EXPECT_EQ(cgroup_memory_usage(root.path()), std::nullopt);
}

TEST(MemoryLimit, NothingKnownIsSaid) {
  const test::TempDir empty;
  EXPECT_EQ(available_memory(empty.path()).bound_by, "");
  const Root root;
  root.file("proc/meminfo", "MemTotal: 2000 kB");
  root.expect(0, "");
  root.version2("/a");
  root.group2("sys/fs/cgroup/a", "5000", "1000");
  root.expect(4000, "/sys/fs/cgroup/a");
}

TEST(MemoryLimit, Version2LeavesTheLimitLessWhatIsUsedAndCannotBeReclaimed) {
  const Root root;
  root.version2("/a");
  root.group2("sys/fs/cgroup/a", "500000", "300000",
              "anon 7\nfile 9\ninactive_file 90000\nactive_file 10000");
  root.expect(300'000, "/sys/fs/cgroup/a");
}

TEST(MemoryLimit, AWideLimitLeavesMemAvailable) {
  const Root root;
  root.version2("/a");
  root.group2("sys/fs/cgroup/a", "50000000", "300000");
  root.expect(kMemAvailable, "MemAvailable");
}

TEST(MemoryLimit, MaxIsNoLimit) {
  const Root root;
  root.version2("/a/b");
  root.group2("sys/fs/cgroup/a", "max", "300000");
  root.group2("sys/fs/cgroup/a/b", "max", "300000");
  root.expect(kMemAvailable, "MemAvailable");
  EXPECT_EQ(cgroup_memory_usage(root.path()), std::nullopt);
}

TEST(MemoryLimit, TheTighterGroupMayBeAbove) {
  const Root root;
  root.version2("/a/b/c");
  root.group2("sys/fs/cgroup/a", "400000", "350000");  // others of /a use it
  root.group2("sys/fs/cgroup/a/b", "max", "100000");
  root.group2("sys/fs/cgroup/a/b/c", "300000", "50000");
  root.expect(50'000, "/sys/fs/cgroup/a");
  const std::vector<MemoryLimit> limits = cgroup_memory_limits(root.path());
  ASSERT_EQ(limits.size(), 2U);
  EXPECT_EQ(limits[0].where, "/sys/fs/cgroup/a/b/c");
  EXPECT_EQ(limits[0].available(), 250'000U);
}

// A program whose file is cached for another group holds pages that its own is not charged for: a plan
// of 95% of limit less usage plus what it holds was larger than the limit.
TEST(MemoryLimit, WhatTheProcessHoldsIsAvailableUpToTheLowestLimit) {
  const Root root;
  root.version2("/a/b");
  root.group2("sys/fs/cgroup/a", "400000", "350000");
  root.group2("sys/fs/cgroup/a/b", "300000", "50000");
  const AvailableMemory found = available_memory(root.path());
  EXPECT_EQ(found.with(10'000), 60'000U);
  EXPECT_EQ(found.with(280'000), 300'000U);
}

// No memory left is not the same as nothing known about it.
TEST(MemoryLimit, AFullGroupLeavesWhatTheProcessHolds) {
  const Root root;
  root.version2("/a");
  root.group2("sys/fs/cgroup/a", "400000", "400000");
  EXPECT_EQ(available_memory(root.path()).with(30'000), 30'000U);
  EXPECT_EQ(AvailableMemory().with(30'000), 0U);
}

TEST(MemoryLimit, HighIsALimitToo) {
  const Root root;
  root.version2("/a");
  root.group2("sys/fs/cgroup/a", "500000", "100000");
  root.file("sys/fs/cgroup/a/memory.high", "400000");
  root.expect(300'000, "/sys/fs/cgroup/a");
  root.file("sys/fs/cgroup/a/memory.high", "max");
  root.expect(400'000, "/sys/fs/cgroup/a");
  root.file("sys/fs/cgroup/a/memory.max", "max");
  root.file("sys/fs/cgroup/a/memory.high", "200000");
  root.expect(100'000, "/sys/fs/cgroup/a");
}

TEST(MemoryLimit, NeverNegative) {
  const Root root;
  root.version2("/a");
  root.group2("sys/fs/cgroup/a", "100000", "300000");
  root.expect(0, "/sys/fs/cgroup/a");
  // Counted at different moments, file pages may exceed the use.
  root.group2("sys/fs/cgroup/a", "100000", "3000", "inactive_file 5000\nactive_file 5000");
  root.expect(100'000, "/sys/fs/cgroup/a");
}

TEST(MemoryLimit, Version1CountsTheGroupsBelow) {
  const Root root;
  root.version1("/a");
  root.group1("sys/fs/cgroup/memory", kNoLimitV1, "900000");
  root.group1("sys/fs/cgroup/memory/a", "500000", "300000",
              "inactive_file 1\nactive_file 1\ntotal_inactive_file 60000\ntotal_active_file 40000");
  root.expect(300'000, "/sys/fs/cgroup/memory/a");
}

TEST(MemoryLimit, Version1sLargestNumberIsNoLimit) {
  const Root root;
  root.version1("/a");
  // With pages of 4 and of 64 KiB.
  for (const char* none : {kNoLimitV1, "9223372036854710272", "-1"}) {
    root.group1("sys/fs/cgroup/memory/a", none, "300000",
                std::string("hierarchical_memory_limit ") + kNoLimitV1);
    root.expect(kMemAvailable, "MemAvailable");
  }
}

TEST(MemoryLimit, Version1NestedWithTheTighterLimitAbove) {
  const Root root;
  root.version1("/a/b");
  root.group1("sys/fs/cgroup/memory/a", "400000", "350000");
  root.group1("sys/fs/cgroup/memory/a/b", "300000", "50000");
  root.file("sys/fs/cgroup/memory/a/memory.use_hierarchy", "1");
  root.expect(50'000, "/sys/fs/cgroup/memory/a");
  // A group that does not count its children does not limit them.
  root.file("sys/fs/cgroup/memory/a/memory.use_hierarchy", "0");
  root.expect(250'000, "/sys/fs/cgroup/memory/a/b");
}

TEST(MemoryLimit, Version1TellsOfALimitAboveTheMount) {
  const Root root;
  root.version1("/a");
  root.group1("sys/fs/cgroup/memory/a", kNoLimitV1, "50000", "hierarchical_memory_limit 200000");
  root.expect(150'000, "/sys/fs/cgroup/memory/a");
}

TEST(MemoryLimit, HybridUsesTheHierarchyThatHasTheController) {
  const Root memory_in_1;
  memory_in_1.file("proc/self/mountinfo", std::string(kMountsV1) +
                                              "33 23 0:29 / /sys/fs/cgroup/unified rw - cgroup2 "
                                              "cgroup2 rw");
  memory_in_1.file("proc/self/cgroup", "4:memory:/a\n0::/b");
  memory_in_1.group1("sys/fs/cgroup/memory/a", "500000", "100000");
  memory_in_1.expect(400'000, "/sys/fs/cgroup/memory/a");

  const Root memory_in_2;
  memory_in_2.file("proc/self/mountinfo",
                   "31 23 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
                   "33 23 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw");
  memory_in_2.file("proc/self/cgroup", "3:cpu:/c\n0::/b");
  memory_in_2.group2("sys/fs/cgroup/unified/b", "500000", "200000");
  memory_in_2.expect(300'000, "/sys/fs/cgroup/unified/b");
}

TEST(MemoryLimit, AContainerSeesItsPartOfTheHierarchy) {
  const Root root;
  root.file("proc/self/mountinfo", "30 23 0:26 /box /sys/fs/cgroup rw - cgroup2 cgroup2 rw");
  root.file("proc/self/cgroup", "0::/box/job");
  root.group2("sys/fs/cgroup", "400000", "300000");
  root.group2("sys/fs/cgroup/job", "300000", "100000");
  root.expect(100'000, "/sys/fs/cgroup");

  const Root own_namespace;  // the group is above what the mount shows
  own_namespace.version2("/../../elsewhere");
  own_namespace.group2("sys/fs/cgroup", "300000", "100000");
  own_namespace.expect(200'000, "/sys/fs/cgroup");
}

TEST(MemoryLimit, MissingFiles) {
  const Root root;
  root.version2("/a/b");
  root.file("sys/fs/cgroup/a/b/memory.current", "7");  // no memory.max
  root.expect(kMemAvailable, "MemAvailable");
  root.file("sys/fs/cgroup/a/memory.max", "300000");  // nothing else
  root.expect(300'000, "/sys/fs/cgroup/a");
}

TEST(MemoryLimit, UnreadableAndDamagedFiles) {
  const Root root;
  root.version2("/a");
  fs::create_directories(root.path() /
                         "sys/fs/cgroup/a/memory.max");  // reading fails, for root too
  root.expect(kMemAvailable, "MemAvailable");
  fs::remove(root.path() / "sys/fs/cgroup/a/memory.max");
  for (const char* damaged : {"", "12x", "1 2", "99999999999999999999999"}) {
    root.group2("sys/fs/cgroup/a", damaged, "300000");
    root.expect(kMemAvailable, "MemAvailable");
  }
  root.group2("sys/fs/cgroup/a", "300000", "100000", "not a stat");
  root.expect(200'000, "/sys/fs/cgroup/a");
}

TEST(CgroupUsage, IsOfTheGroupWithTheLowestLimit) {
  const Root root;
  root.version2("/a/b");
  root.group2("sys/fs/cgroup/a", "200000", "100");
  root.group2("sys/fs/cgroup/a/b", "300000", "100");
  root.file("sys/fs/cgroup/a/b/memory.peak", "1");
  std::optional<CgroupMemoryUsage> usage = cgroup_memory_usage(root.path());
  ASSERT_TRUE(usage);
  EXPECT_EQ(usage->limit, 200'000U);
  EXPECT_EQ(usage->where, "/sys/fs/cgroup/a");
  EXPECT_EQ(usage->peak, std::nullopt);  // an old kernel
  root.file("sys/fs/cgroup/a/memory.peak", "123456");
  usage = cgroup_memory_usage(root.path());
  ASSERT_TRUE(usage);
  EXPECT_EQ(usage->peak, 123'456U);
}

TEST(CgroupUsage, Version1) {
  const Root root;
  root.version1("/a");
  root.group1("sys/fs/cgroup/memory/a", "200000", "100");
  root.file("sys/fs/cgroup/memory/a/memory.max_usage_in_bytes", "4096");
  const std::optional<CgroupMemoryUsage> usage = cgroup_memory_usage(root.path());
  ASSERT_TRUE(usage);
  EXPECT_EQ(usage->limit, 200'000U);
  EXPECT_EQ(usage->peak, 4096U);
}

// A pair of nested groups of the running kernel, removed at the end.
class RealGroups {
 public:
  RealGroups()
      : outer_("/sys/fs/cgroup/memory/k3-test-" + std::to_string(getpid())),
        inner_(outer_ / "inner") {
    std::error_code refused;
    fs::create_directories(inner_, refused);
  }

  ~RealGroups() {
    // A group stays busy for a moment after its last process.
    for (int i = 0; i < 100 && rmdir(inner_.c_str()) != 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    rmdir(outer_.c_str());
  }

  RealGroups(const RealGroups&) = delete;
  RealGroups& operator=(const RealGroups&) = delete;

  [[nodiscard]] bool set_limits(std::uint64_t outer_bytes, std::uint64_t inner_bytes) const {
    return write(outer_ / "memory.limit_in_bytes", outer_bytes) &&
           write(inner_ / "memory.limit_in_bytes", inner_bytes);
  }

  // For the child process.
  [[nodiscard]] bool enter() const {
    return write(inner_ / "cgroup.procs", static_cast<std::uint64_t>(getpid()));
  }

  [[nodiscard]] const fs::path& outer() const { return outer_; }

 private:
  static bool write(const fs::path& path, std::uint64_t value) {
    std::ofstream out(path);
    out << value << std::flush;
    return static_cast<bool>(out);
  }

  fs::path outer_;
  fs::path inner_;
};

// What a process inside the groups sees.
struct Inside {
  bool entered = false;
  bool bound_by_outer = false;
  std::uint64_t before = 0;  // available
  std::uint64_t after = 0;   // with kTaken bytes more in use
  std::uint64_t limit = 0;
  std::uint64_t peak = 0;
};

constexpr std::size_t kMebibyte = 1 << 20;
constexpr std::size_t kTaken = 16 * kMebibyte;

Inside look_from_inside(const RealGroups& groups) {
  Inside seen;
  seen.entered = groups.enter();
  const AvailableMemory before = available_memory();
  seen.before = before.bytes;
  seen.bound_by_outer = before.bound_by == groups.outer();
  std::vector<char> taken(kTaken, 1);
  seen.after = available_memory().bytes;
  const std::optional<CgroupMemoryUsage> usage = cgroup_memory_usage();
  seen.limit = usage ? usage->limit : 0;
  seen.peak = usage ? usage->peak.value_or(0) : 0;
  seen.peak += static_cast<std::uint64_t>(taken.back()) - 1;  // keeps the memory in use
  return seen;
}

TEST(MemoryLimit, ARealGroupOfVersion1) {
  const RealGroups groups;
  if (!groups.set_limits(192 * kMebibyte, 256 * kMebibyte)) {
    GTEST_SKIP() << "no memory groups of version 1 that this user may make";
  }
  if (available_memory().bytes < 512 * kMebibyte) {
    GTEST_SKIP() << "too little free memory for the groups to be the limit";
  }
  std::array<int, 2> ends = {};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const Inside seen = look_from_inside(groups);
    const bool told = write(ends[1], &seen, sizeof seen) == sizeof seen;
    _exit(told ? EXIT_SUCCESS : EXIT_FAILURE);
  }
  close(ends[1]);
  Inside seen;
  const ssize_t count = read(ends[0], &seen, sizeof seen);
  close(ends[0]);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  ASSERT_EQ(count, static_cast<ssize_t>(sizeof seen));
  ASSERT_TRUE(seen.entered);
  EXPECT_TRUE(seen.bound_by_outer);
  EXPECT_LE(seen.before, 192 * kMebibyte);
  EXPECT_GT(seen.before, 128 * kMebibyte);
  EXPECT_LE(seen.after, seen.before - kTaken + 4 * kMebibyte);
  EXPECT_GE(seen.after, seen.before - 8 * kTaken);  // sanitizers take up to 4 bytes more for each
  EXPECT_EQ(seen.limit, 192 * kMebibyte);
  EXPECT_GE(seen.peak, kTaken);
}

}  // namespace
}  // namespace k3

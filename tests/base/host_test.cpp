#include "base/host.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "base/cgroup.h"
#include "support/paths.h"

namespace k3 {
namespace {

namespace fs = std::filesystem;

// A file system root as the kernel would show it.
class Root {
 public:
  void file(const fs::path& path, const std::string& content) const {
    fs::create_directories((dir_.path() / path).parent_path());
    std::ofstream(dir_.path() / path) << content;
  }

  void core(int cpu, const std::string& package, const std::string& core) const {
    const fs::path topology = "sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology";
    file(topology / "physical_package_id", package + "\n");
    file(topology / "core_id", core + "\n");
  }

  [[nodiscard]] const fs::path& path() const { return dir_.path(); }

 private:
  test::TempDir dir_;
};

TEST(Host, HyperthreadsShareACore) {
  const Root root;
  root.core(0, "0", "0");
  root.core(1, "0", "1");
  root.core(2, "0", "0");
  root.core(3, "1", "0");
  EXPECT_EQ(physical_cores({0, 1, 2, 3}, root.path()), 3U);
  EXPECT_EQ(physical_cores({0, 2}, root.path()), 1U);
  EXPECT_EQ(physical_cores({7, 8}, root.path()), 2U);  // no topology
}

TEST(Host, ThisProcessMayUseSomeCpu) {
  EXPECT_FALSE(allowed_cpus().empty());
  EXPECT_GE(default_threads(), 1);
}

TEST(Host, MemoryIsKnown) {
  EXPECT_GT(available_memory().bytes, std::uint64_t{1} << 20);
}

constexpr const char* kMountsV2 =
    "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
constexpr const char* kMountsV1 =
    "31 23 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "32 23 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";

TEST(Cgroup, Version2QuotaIsTheLeastOfAllGroupsAbove) {
  const Root root;
  root.file("proc/self/mountinfo", kMountsV2);
  root.file("proc/self/cgroup", "0::/a/b\n");
  root.file("sys/fs/cgroup/a/cpu.max", "150000 100000\n");
  root.file("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(cgroup_cpu_quota(root.path()), 1.5);
  root.file("sys/fs/cgroup/a/b/cpu.max", "50000 100000\n");
  EXPECT_EQ(cgroup_cpu_quota(root.path()), 0.5);
}

TEST(Cgroup, Version1) {
  const Root root;
  root.file("proc/self/mountinfo", kMountsV1);
  root.file("proc/self/cgroup", "4:memory:/x\n3:cpu,cpuacct:/a\n");
  root.file("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "300000\n");
  root.file("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
  root.file("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  root.file("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_cpu_quota(root.path()), 3.0);
  const auto memory = cgroup_directories("memory", root.path());
  ASSERT_EQ(memory.size(), 2U);
  EXPECT_EQ(memory[0], root.path() / "sys/fs/cgroup/memory/x");
  EXPECT_EQ(memory[1], root.path() / "sys/fs/cgroup/memory");
}

TEST(Cgroup, AContainerSeesItsPartOfTheHierarchy) {
  const Root root;
  root.file("proc/self/mountinfo", "30 23 0:26 /box /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  root.file("proc/self/cgroup", "0::/box/job\n");
  root.file("sys/fs/cgroup/job/cpu.max", "100000 100000\n");
  EXPECT_EQ(cgroup_cpu_quota(root.path()), 1.0);
}

TEST(Cgroup, NoQuotaWithoutControlGroups) {
  const Root root;
  EXPECT_EQ(cgroup_cpu_quota(root.path()), std::nullopt);
  root.file("proc/self/mountinfo", "garbage\n");
  root.file("proc/self/cgroup", "garbage\n");
  EXPECT_EQ(cgroup_cpu_quota(root.path()), std::nullopt);
}

TEST(Host, AQuotaLimitsTheDefaultThreads) {
  const Root root;
  root.file("proc/self/mountinfo", kMountsV2);
  root.file("proc/self/cgroup", "0::/\n");
  root.file("sys/fs/cgroup/cpu.max", "20000 100000\n");
  EXPECT_EQ(default_threads(root.path()), 1);
}

}  // namespace
}  // namespace k3

#include "k3/atomic_file.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include "support/paths.h"

namespace k3 {
namespace {

namespace fs = std::filesystem;

std::string content(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::size_t entries(const fs::path& directory) {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(directory), fs::directory_iterator()));
}

TEST(AtomicFile, CommitReplacesTheWholeFile) {
  const test::TempDir dir;
  const fs::path path = dir.path() / "out.json";
  std::ofstream(path) << "a much longer old content";
  AtomicFile file(path);
  file.write("new");
  EXPECT_EQ(content(path), "a much longer old content");
  file.commit();
  EXPECT_EQ(content(path), "new");
  EXPECT_EQ(entries(dir.path()), 1U);
}

TEST(AtomicFile, WithoutCommitNothingChangesAndNothingIsLeft) {
  const test::TempDir dir;
  const fs::path path = dir.path() / "out.json";
  std::ofstream(path) << "old";
  {
    AtomicFile file(path);
    file.write("half");
  }
  EXPECT_EQ(content(path), "old");
  EXPECT_EQ(entries(dir.path()), 1U);
}

TEST(AtomicFile, KeepsThePermissionsOfAnExistingFile) {
  const test::TempDir dir;
  const fs::path path = dir.path() / "out.json";
  std::ofstream(path) << "old";
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
  AtomicFile file(path);
  file.commit();
  EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST(AtomicFile, FollowsALinkInsteadOfReplacingIt) {
  const test::TempDir dir;
  std::ofstream(dir.path() / "real") << "old";
  fs::create_symlink("real", dir.path() / "link");
  AtomicFile file(dir.path() / "link");
  file.write("new");
  file.commit();
  EXPECT_TRUE(fs::is_symlink(dir.path() / "link"));
  EXPECT_EQ(content(dir.path() / "real"), "new");
}

TEST(AtomicFile, FollowsALinkToAFileThatDoesNotExistYet) {
  const test::TempDir dir;
  fs::create_symlink("later", dir.path() / "link");
  AtomicFile file(dir.path() / "link");
  file.write("new");
  file.commit();
  EXPECT_TRUE(fs::is_symlink(dir.path() / "link"));
  EXPECT_EQ(content(dir.path() / "later"), "new");
}

TEST(AtomicFile, AnEmptyNameFailsAtOnce) {
  EXPECT_THROW(AtomicFile(""), Error);
}

// A process that is killed must leave nothing behind.
TEST(AtomicFile, NothingIsSeenOfItBeforeCommit) {
  const test::TempDir dir;
  AtomicFile file(dir.path() / "out.json");
  file.write("half");
  EXPECT_EQ(entries(dir.path()), 0U);
}

TEST(AtomicFile, WritesToADeviceDirectly) {
  AtomicFile file("/dev/null");
  file.write("anything");
  file.commit();
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST(AtomicFile, AnUnwritableDestinationFailsAtOnce) {
  const test::TempDir dir;
  for (const fs::path& path : {dir.path(), dir.path() / "missing" / "out.json"}) {
    try {
      AtomicFile file(path);
      FAIL() << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
      EXPECT_NE(std::string(error.what()).find(path.string()), std::string::npos) << error.what();
    }
  }
}

TEST(AtomicFile, AFullDeviceIsAnError) {
  AtomicFile file("/dev/full");
  EXPECT_THROW(file.write("x"), Error);
}

}  // namespace
}  // namespace k3

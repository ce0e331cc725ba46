#include "io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "k3/errors.h"

#include "support/expect_error.h"
#include "support/faulty_file_system.h"
#include "support/paths.h"
#include "support/safetensors_builder.h"

namespace k3::io {
namespace {

using test::Faults;
using test::FaultyFileSystem;
using test::throws;

// A file of 1000 bytes, byte i being i mod 251.
class FileTest : public testing::Test {
 protected:
  FileTest() : path_(dir_.path() / "data.bin") {
    for (std::size_t i = 0; i < 1000; ++i) {
      content_ += static_cast<char>(i % 251);
    }
    test::write_file(path_, content_);
  }

  // What read_exact() brings from `offset`.
  std::string read(const Faults& faults, std::uint64_t offset, std::size_t bytes) {
    FaultyFileSystem file_system(faults);
    const auto file = open_file(file_system, path_, ErrorKind::kIo);
    std::string out(bytes, '?');
    read_exact(*file, offset, std::as_writable_bytes(std::span(out)));
    reads_ = file_system.reads();
    return out;
  }

  test::TempDir dir_;
  std::filesystem::path path_;
  std::string content_;
  int reads_ = 0;
};

TEST_F(FileTest, ReadsExactlyTheBytesAsked) {
  EXPECT_EQ(read({}, 0, 1000), content_);
  EXPECT_EQ(read({}, 17, 300), content_.substr(17, 300));
  EXPECT_EQ(read({}, 999, 1), content_.substr(999));
  EXPECT_EQ(read({}, 5000, 0), "");  // nothing asked, nothing read
}

TEST_F(FileTest, ShortCountsAreContinued) {
  EXPECT_EQ(read({.max_read_bytes = 7}, 3, 900), content_.substr(3, 900));
  EXPECT_EQ(reads_, (900 + 6) / 7);
  EXPECT_EQ(read({.max_read_bytes = 1}, 0, 100), content_.substr(0, 100));
}

TEST_F(FileTest, InterruptionsAreRetried) {
  EXPECT_EQ(read({.max_read_bytes = 400, .interruptions_per_read = 3}, 0, 1000), content_);
  EXPECT_EQ(reads_, 3 * (3 + 1));
}

TEST_F(FileTest, EndOfFileNamesFileOffsetExpectedAndGot) {
  EXPECT_TRUE(
      throws(ErrorKind::kIo,
             {path_.string(), "offset 900", "end of file", "expected 200 bytes", "found 100 bytes"},
             [&] { read({}, 900, 200); }));
  EXPECT_TRUE(throws(ErrorKind::kIo, {path_.string(), "offset 2000", "found 0 bytes"},
                     [&] { read({}, 2000, 1); }));
}

TEST_F(FileTest, FileThatShrinksWhileOpenIsAnError) {
  EXPECT_TRUE(throws(ErrorKind::kIo, {"end of file", "expected 1000 bytes", "found 512 bytes"},
                     [&] { read({.file_ends_at = 512}, 0, 1000); }));
}

TEST_F(FileTest, InputOutputErrorNamesFileOffsetExpectedAndGot) {
  EXPECT_TRUE(throws(
      ErrorKind::kIo,
      {path_.string(), "offset 100", "Input/output error", "expected 800 bytes", "found 500 bytes"},
      [&] { read({.eio_from_byte = 600}, 100, 800); }));
}

TEST_F(FileTest, ErrorKindIsTheCallers) {
  FaultyFileSystem file_system({.eio_from_byte = 0});
  const auto file = open_file(file_system, path_, ErrorKind::kIo);
  std::vector<std::byte> out(10);
  EXPECT_TRUE(throws(ErrorKind::kExpertIo, {"Input/output error"},
                     [&] { read_exact(*file, 0, out, ErrorKind::kExpertIo); }));
}

TEST_F(FileTest, OffsetsHave64Bits) {
  const std::filesystem::path sparse = dir_.path() / "sparse.bin";
  const std::uint64_t far = (std::uint64_t{1} << 33U) + 5;
  test::write_file(sparse, "");
  std::filesystem::resize_file(sparse, far + 3);
  const auto file = open_file(posix_file_system(), sparse, ErrorKind::kIo);
  EXPECT_EQ(file->size(), far + 3);
  std::vector<std::byte> out(3, std::byte{1});
  read_exact(*file, far, out);
  EXPECT_EQ(out, std::vector<std::byte>(3));
  EXPECT_TRUE(throws(ErrorKind::kIo, {"offset 18446744073709551000"},
                     [&] { read_exact(*file, 18446744073709551000U, out); }));
}

TEST_F(FileTest, OpenFailuresNameFileAndReason) {
  const auto open = [&](const std::filesystem::path& path) {
    static_cast<void>(open_file(posix_file_system(), path, ErrorKind::kCheckpoint));
  };
  EXPECT_TRUE(throws(ErrorKind::kCheckpoint, {"absent.bin", "No such file"},
                     [&] { open(dir_.path() / "absent.bin"); }));
  EXPECT_TRUE(throws(ErrorKind::kCheckpoint, {dir_.path().string(), "Is a directory"},
                     [&] { open(dir_.path()); }));
}

TEST_F(FileTest, PipeIsRefusedAndDoesNotHang) {
  const std::filesystem::path pipe = dir_.path() / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_TRUE(throws(ErrorKind::kIo, {"pipe", "not supported"}, [&] {
    static_cast<void>(open_file(posix_file_system(), pipe, ErrorKind::kIo));
  }));
}

TEST_F(FileTest, LinksAreFollowed) {
  const std::filesystem::path link = dir_.path() / "link";
  std::filesystem::create_symlink(path_, link);
  EXPECT_EQ(open_file(posix_file_system(), link, ErrorKind::kIo)->size(), 1000U);
}

TEST_F(FileTest, RefusedDirectAccessIsReportedNotThrown) {
  FaultyFileSystem file_system({.refuse_direct = true});
  const OpenResult refused = file_system.open(path_, Caching::kDirect);
  EXPECT_EQ(refused.file, nullptr);
  EXPECT_EQ(refused.error, EINVAL);
  EXPECT_NE(file_system.open(path_, Caching::kBuffered).file, nullptr);
}

TEST_F(FileTest, ListsADirectory) {
  std::filesystem::create_directory(dir_.path() / "sub");
  ListResult listed = posix_file_system().list(dir_.path());
  std::sort(listed.names.begin(), listed.names.end());
  EXPECT_EQ(listed.error, 0);
  EXPECT_EQ(listed.names, (std::vector<std::string>{"data.bin", "sub"}));
  EXPECT_EQ(posix_file_system().list(dir_.path() / "absent").error, ENOENT);
  EXPECT_EQ(posix_file_system().list(path_).error, ENOTDIR);
}

TEST_F(FileTest, ReadsWholeFilesUpToALimit) {
  EXPECT_EQ(read_whole(posix_file_system(), path_, 1000, ErrorKind::kConfig), content_);
  EXPECT_TRUE(throws(ErrorKind::kConfig, {path_.string(), "at most 999 bytes", "1000 bytes"}, [&] {
    static_cast<void>(read_whole(posix_file_system(), path_, 999, ErrorKind::kConfig));
  }));
}

}  // namespace
}  // namespace k3::io

#include "io/window_file.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "k3/errors.h"

#include "base/window_buffer.h"
#include "support/expect_error.h"
#include "support/faulty_file_system.h"
#include "support/paths.h"
#include "support/safetensors_builder.h"

namespace k3::io {
namespace {

using test::Faults;
using test::FaultyFileSystem;
using test::throws;

constexpr std::size_t kBlock = 512;       // alignment of the faulty file system
constexpr std::size_t kFileBytes = 9999;  // 19 blocks and a half

TEST(Window, IsTheAlignedRangeAroundThePayload) {
  const Window odd = aligned_window(1000, 100, kBlock);
  EXPECT_EQ(odd.begin, 512U);
  EXPECT_EQ(odd.skip, 488U);
  EXPECT_EQ(odd.bytes, 1024U);  // to 1536, beyond 1100
  const Window whole = aligned_window(1024, 512, kBlock);
  EXPECT_EQ(whole.begin, 1024U);
  EXPECT_EQ(whole.skip, 0U);
  EXPECT_EQ(whole.bytes, 512U);
  EXPECT_EQ(aligned_window(1000, 0, kBlock).bytes, 0U);
  EXPECT_EQ(aligned_window((std::uint64_t{1} << 40U) + 7, 1, kBlock).begin,
            std::uint64_t{1} << 40U);
}

TEST(Window, CapacityIsTheLargestWindowOfAnyOffsetAndNoMore) {
  for (const std::size_t bytes : {0U, 1U, 2U, 511U, 512U, 513U, 1024U, 5000U}) {
    std::size_t largest = 0;
    for (std::uint64_t offset = 0; offset < kBlock; ++offset) {
      largest = std::max(largest, aligned_window(offset, bytes, kBlock).bytes);
    }
    EXPECT_EQ(aligned_capacity(bytes, kBlock), largest) << bytes;
  }
}

// A file of kFileBytes bytes, byte i being i mod 251, which no multiple of a block repeats.
class WindowFileTest : public testing::Test {
 protected:
  WindowFileTest() : path_(dir_.path() / "data.bin") {
    for (std::size_t i = 0; i < kFileBytes; ++i) {
      content_ += static_cast<char>(i % 251);
    }
    test::write_file(path_, content_);
  }

  // The payload that a file brings.
  std::string read(WindowFile& file,
                   std::uint64_t offset,
                   std::size_t bytes,
                   ErrorKind kind = ErrorKind::kIo) {
    const WindowBuffer buffer(file.window_of(offset, bytes).bytes, file.alignment());
    std::fill(buffer.span().begin(), buffer.span().end(), std::byte{'?'});
    const WindowRead result = file.read(offset, bytes, buffer.span(), kind);
    read_bytes_ = result.read_bytes;
    return {reinterpret_cast<const char*>(result.payload), bytes};
  }

  // The same of a file opened with these faults, whose counters it keeps.
  std::string read(const Faults& faults, std::uint64_t offset, std::size_t bytes) {
    FaultyFileSystem file_system(faults);
    WindowFile file(file_system, path_);
    std::string payload = read(file, offset, bytes);
    reads_ = file_system.reads();
    direct_reads_ = file_system.direct_reads();
    direct_ = file.direct();
    return payload;
  }

  test::TempDir dir_;
  std::filesystem::path path_;
  std::string content_;
  std::uint64_t read_bytes_ = 0;
  int reads_ = 0;
  int direct_reads_ = 0;
  bool direct_ = false;
};

TEST_F(WindowFileTest, ReadsPayloadsAtAnyOffset) {
  for (const std::uint64_t offset : {0U, 1U, 511U, 512U, 513U, 1000U, 9000U}) {
    for (const std::size_t bytes : {1U, 511U, 512U, 513U, 999U}) {
      EXPECT_EQ(read({}, offset, bytes), content_.substr(offset, bytes)) << offset << " " << bytes;
      EXPECT_EQ(reads_, 1);
      EXPECT_TRUE(direct_);  // the faulty file system refuses what is not aligned
    }
  }
  EXPECT_EQ(read({}, 0, kFileBytes), content_);
}

TEST_F(WindowFileTest, AlignmentIsThatOfTheFileSystem) {
  for (const std::size_t alignment : {1U, 512U, 4096U, 65536U}) {
    FaultyFileSystem file_system({.alignment = alignment});
    WindowFile file(file_system, path_);
    EXPECT_EQ(file.alignment(), alignment);
    EXPECT_EQ(read(file, 777, 1234), content_.substr(777, 1234));
    EXPECT_TRUE(file.direct());
  }
}

TEST_F(WindowFileTest, WindowBeyondTheEndOfTheFileIsFine) {
  EXPECT_EQ(read({}, kFileBytes - 3, 3), content_.substr(kFileBytes - 3));
  EXPECT_EQ(read_bytes_, kFileBytes % kBlock);  // what the last block holds
  EXPECT_EQ(reads_, 1);
}

TEST_F(WindowFileTest, NothingAskedIsNothingRead) {
  EXPECT_EQ(read({}, 100, 0), "");
  EXPECT_EQ(reads_, 0);
}

TEST_F(WindowFileTest, CountsTheBytesOfTheWindowApart) {
  read({}, 1000, 100);
  EXPECT_EQ(read_bytes_, 1024U);
  read({.refuse_direct = true}, 1000, 100);
  EXPECT_EQ(read_bytes_, 100U);  // through the page cache nothing else is asked for
}

TEST_F(WindowFileTest, AShortCountGoesOnAtTheAlignedOffsetBelow) {
  // 700 bytes a read are one new block each.
  EXPECT_EQ(read({.max_read_bytes = 700}, 100, 5000), content_.substr(100, 5000));
  EXPECT_TRUE(direct_);
  EXPECT_EQ(reads_, 10);  // windows begin at 0, 512, ..., 4608; 5100 is below 4608 + 700
  EXPECT_EQ(read_bytes_, 9 * 700U + 512);
}

TEST_F(WindowFileTest, CountsBelowABlockAreReadThroughThePageCache) {
  EXPECT_EQ(read({.max_read_bytes = 100}, 300, 2000), content_.substr(300, 2000));
  EXPECT_FALSE(direct_);
  EXPECT_EQ(direct_reads_, 2);  // the second one brought nothing new
}

TEST_F(WindowFileTest, InterruptionsAreRetried) {
  EXPECT_EQ(read({.max_read_bytes = 2048, .interruptions_per_read = 1000}, 5, 4000),
            content_.substr(5, 4000));
  EXPECT_TRUE(direct_);
  EXPECT_EQ(reads_, 2 * 1001);
  EXPECT_EQ(read({.interruptions_per_read = 50, .refuse_direct = true}, 5, 4000),
            content_.substr(5, 4000));
  EXPECT_EQ(reads_, 51);
}

TEST_F(WindowFileTest, RefusalAtOpenFallsBackAndIsSaidOnce) {
  FaultyFileSystem file_system({.refuse_direct = true});
  WindowFile file(file_system, path_);
  EXPECT_FALSE(file.direct());
  EXPECT_NE(file.fallback_reason().find("at open: Invalid argument"), std::string::npos);
  EXPECT_EQ(read(file, 100, 3000), content_.substr(100, 3000));
  const std::optional<std::string> notice = file.take_fallback_notice();
  ASSERT_TRUE(notice.has_value());
  EXPECT_NE(notice->find(path_.string()), std::string::npos);
  EXPECT_NE(notice->find("Invalid argument"), std::string::npos);
  EXPECT_FALSE(file.take_fallback_notice().has_value());
  EXPECT_EQ(file.alignment(), kBlock);  // windows do not depend on it
}

TEST_F(WindowFileTest, RefusalAtAReadFallsBackAndIsSaidOnce) {
  FaultyFileSystem file_system({.refuse_direct_reads = true});
  WindowFile file(file_system, path_);
  EXPECT_TRUE(file.direct());
  EXPECT_EQ(file.fallback_reason(), "");
  EXPECT_FALSE(file.take_fallback_notice().has_value());
  EXPECT_EQ(read(file, 100, 3000), content_.substr(100, 3000));
  EXPECT_FALSE(file.direct());
  EXPECT_EQ(read(file, 1, 9000), content_.substr(1, 9000));
  EXPECT_EQ(file_system.direct_reads(), 1);  // not tried again
  EXPECT_EQ(file_system.opens(), 2);
  EXPECT_NE(file.fallback_reason().find("at a read: Invalid argument"), std::string::npos);
  EXPECT_TRUE(file.take_fallback_notice().has_value());
  EXPECT_FALSE(file.take_fallback_notice().has_value());
}

TEST_F(WindowFileTest, ManyThreadsFallBackTogetherAndReopenOnce) {
  constexpr int kThreads = 8;
  FaultyFileSystem file_system({.refuse_direct_reads = true});
  WindowFile file(file_system, path_);
  file_system.hold("data.bin");  // so that every thread is inside its direct read
  std::atomic<int> right = 0;
  std::atomic<int> notices = 0;
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const WindowBuffer buffer(file.window_capacity(3000), file.alignment());
      const auto offset = static_cast<std::size_t>(i) * 701;
      const WindowRead result = file.read(offset, 3000, buffer.span());
      right += std::string(reinterpret_cast<const char*>(result.payload), 3000) ==
                       content_.substr(offset, 3000)
                   ? 1
                   : 0;
      notices += file.take_fallback_notice().has_value() ? 1 : 0;
    });
  }
  file_system.wait_held(kThreads);
  file_system.release();
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(right, kThreads);
  EXPECT_EQ(notices, 1);
  EXPECT_EQ(file_system.direct_reads(), kThreads);
  EXPECT_EQ(file_system.opens(), 2);
}

TEST_F(WindowFileTest, FallbackThatCannotOpenIsAnErrorOfTheReader) {
  FaultyFileSystem file_system({.refuse_direct_reads = true, .refuse_reopening = true});
  WindowFile file(file_system, path_);
  EXPECT_TRUE(throws(ErrorKind::kExpertIo, {path_.string(), "Too many open files"},
                     [&] { read(file, 0, 10, ErrorKind::kExpertIo); }));
}

TEST_F(WindowFileTest, BufferedOnRequestIsNoFallback) {
  FaultyFileSystem file_system({});
  WindowFile file(file_system, path_, ErrorKind::kIo, {.direct = false});
  EXPECT_FALSE(file.direct());
  EXPECT_FALSE(file.take_fallback_notice().has_value());
  EXPECT_EQ(read(file, 100, 3000), content_.substr(100, 3000));
  EXPECT_EQ(file_system.direct_reads(), 0);
}

TEST_F(WindowFileTest, OpenFailureIsOfTheKindAskedFor) {
  FaultyFileSystem file_system({});
  EXPECT_TRUE(throws(ErrorKind::kCheckpoint, {"absent.bin", "No such file"}, [&] {
    const WindowFile file(file_system, dir_.path() / "absent.bin", ErrorKind::kCheckpoint);
  }));
}

TEST_F(WindowFileTest, TruncatedFileNamesFileOffsetExpectedAndFound) {
  FaultyFileSystem file_system({});
  WindowFile file(file_system, path_);
  EXPECT_TRUE(
      throws(ErrorKind::kIo,
             {path_.string(), "offset 9900", "end of file", "expected 200 bytes", "found 99 bytes"},
             [&] { read(file, 9900, 200); }));
  EXPECT_TRUE(throws(ErrorKind::kExpertIo, {"offset 20000", "found 0 bytes"},
                     [&] { read(file, 20000, 1, ErrorKind::kExpertIo); }));
  EXPECT_TRUE(throws(ErrorKind::kIo, {"end of file", "found 0 bytes"},
                     [&] { read(file, UINT64_MAX - 5, 1); }));
}

TEST_F(WindowFileTest, FileThatShrinksWhileOpenIsAnErrorAlsoPastAFallback) {
  for (const bool refuse : {false, true}) {
    for (const std::uint64_t end : {1000U, 1024U, 1300U}) {
      const std::string found = "found " + std::to_string(end - 700) + " bytes";
      EXPECT_TRUE(throws(ErrorKind::kIo,
                         {"offset 700", "end of file", "expected 1000 bytes", found},
                         [&] { read({.file_ends_at = end, .refuse_direct = refuse}, 700, 1000); }));
    }
    EXPECT_TRUE(throws(ErrorKind::kIo, {"end of file", "found 0 bytes"},
                       [&] { read({.file_ends_at = 600, .refuse_direct = refuse}, 700, 1000); }));
  }
}

TEST_F(WindowFileTest, InputOutputErrorIsAnErrorAndNoFallback) {
  EXPECT_TRUE(throws(ErrorKind::kIo,
                     {path_.string(), "offset 100", "Input/output error", "expected 8000 bytes",
                      "found 3996 bytes"},
                     [&] { read({.eio_from_byte = 4096}, 100, 8000); }));
  FaultyFileSystem file_system({.max_read_bytes = 1024, .eio_on_read = 3});
  WindowFile file(file_system, path_);
  EXPECT_TRUE(throws(ErrorKind::kExpertIo, {"Input/output error", "found 2048 bytes"},
                     [&] { read(file, 0, 5000, ErrorKind::kExpertIo); }));
  EXPECT_TRUE(file.direct());
  EXPECT_EQ(read(file, 0, 5000), content_.substr(0, 5000));  // the file is not lost
}

TEST_F(WindowFileTest, MemoryThatDoesNotFitIsMisuse) {
  FaultyFileSystem file_system({});
  WindowFile file(file_system, path_);
  const WindowBuffer buffer(4096, 4096);
  EXPECT_THROW(file.read(100, 1000, buffer.span().first(1024)), std::invalid_argument);
  EXPECT_THROW(file.read(0, 100, buffer.span().subspan(8)), std::invalid_argument);
  EXPECT_EQ(file_system.reads(), 0);
}

TEST_F(WindowFileTest, LongReadsAreSplit) {
  for (const bool direct : {true, false}) {
    FaultyFileSystem file_system({});
    WindowFile file(file_system, path_, ErrorKind::kIo,
                    {.direct = direct, .max_request_bytes = 1500});
    EXPECT_EQ(read(file, 300, 9000), content_.substr(300, 9000));
    EXPECT_EQ(file_system.largest_request(), 1024U);  // whole blocks, at most 1500
    EXPECT_EQ(file.direct(), direct);
  }
}

// A file of any size that claims to fill memory and never touches it.
class ClaimingFile final : public File {
 public:
  explicit ClaimingFile(std::vector<std::size_t>& requests) : requests_(requests) {}

  ReadResult read_some(std::uint64_t /*offset*/, std::span<std::byte> out) noexcept override {
    requests_.push_back(out.size());
    return {.bytes = out.size(), .error = 0};
  }

  [[nodiscard]] std::uint64_t size() const noexcept override { return std::uint64_t{1} << 40U; }

  [[nodiscard]] const std::filesystem::path& path() const noexcept override { return path_; }

 private:
  std::vector<std::size_t>& requests_;
  std::filesystem::path path_ = "claiming";
};

class ClaimingFileSystem final : public FileSystem {
 public:
  OpenResult open(const std::filesystem::path& /*path*/, Caching /*caching*/) override {
    return {.file = std::make_unique<ClaimingFile>(requests), .error = 0};
  }

  ListResult list(const std::filesystem::path& /*directory*/) override { return {}; }

  std::vector<std::size_t> requests;
};

TEST(WindowFile, NoRequestIsOverAGibibyte) {
  constexpr std::size_t kGib = std::size_t{1} << 30U;
  constexpr std::size_t kBytes = 2 * kGib + kGib / 2;
  void* const memory =
      ::mmap(nullptr, kBytes + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  ClaimingFileSystem file_system;
  WindowFile file(file_system, "claiming", ErrorKind::kIo, {.max_request_bytes = 8 * kGib});
  const WindowRead result =
      file.read(100, kBytes, {static_cast<std::byte*>(memory), kBytes + 8192});
  EXPECT_EQ(file_system.requests, (std::vector<std::size_t>{kGib, kGib, kGib / 2 + 4096}));
  EXPECT_EQ(result.payload, static_cast<std::byte*>(memory) + 100);
  EXPECT_EQ(result.read_bytes, kBytes + 4096);
  ::munmap(memory, kBytes + 8192);
}

TEST_F(WindowFileTest, TheRealFileSystemGivesTheSameBytes) {
  for (const bool direct : {true, false}) {
    WindowFile file(posix_file_system(), path_, ErrorKind::kIo, {.direct = direct});
    EXPECT_GE(file.alignment(), 1U);
    EXPECT_EQ(file.alignment() & (file.alignment() - 1), 0U);
    EXPECT_NE(file.device(), 0U);
    EXPECT_EQ(file.size(), kFileBytes);
    EXPECT_EQ(read(file, 1234, 4321), content_.substr(1234, 4321));
    EXPECT_EQ(read(file, kFileBytes - 700, 700), content_.substr(kFileBytes - 700));
    file.drop_cached();
    EXPECT_EQ(read(file, 0, kFileBytes), content_);
  }
}

// 5 GiB of hole and a tail: offsets beyond 32 bits.
TEST_F(WindowFileTest, OffsetsHave64Bits) {
  const std::filesystem::path sparse = dir_.path() / "sparse.bin";
  constexpr std::uint64_t kFar = (std::uint64_t{5} << 30U) + 77;
  test::write_file(sparse, "");
  std::filesystem::resize_file(sparse, kFar);
  std::FILE* const tail = std::fopen(sparse.c_str(), "ab");
  ASSERT_NE(tail, nullptr);
  std::fputs("the tail", tail);
  std::fclose(tail);
  WindowFile file(posix_file_system(), sparse);
  EXPECT_EQ(read(file, kFar, 8), "the tail");
  EXPECT_EQ(read(file, kFar - 2, 5), std::string("\0\0the", 5));
}

}  // namespace
}  // namespace k3::io

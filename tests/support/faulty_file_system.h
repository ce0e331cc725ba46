// A file system that misbehaves on purpose.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "io/file.h"

namespace k3::test {

// What the reads of the files opened through it suffer.
struct Faults {
  std::size_t max_read_bytes = SIZE_MAX;  // short counts
  int interruptions_per_read = 0;         // EINTR before each successful read
  std::optional<std::uint64_t> eio_from_byte =
      std::nullopt;  // a read that touches this byte or a later one
  std::optional<std::uint64_t> eio_on_read =
      std::nullopt;  // the n-th read that would succeed, from 1, over all files; no other
  std::optional<std::uint64_t> file_ends_at =
      std::nullopt;                        // reads find the end here; size() still lies
  bool refuse_direct = false;              // O_DIRECT fails with EINVAL
  bool refuse_direct_reads = false;        // it opens, and then reads fail with EINVAL
  bool refuse_reopening = false;           // a buffered open after a direct one fails with EMFILE
  std::chrono::microseconds read_delay{};  // before each read: a slow device
  std::size_t alignment = 512;             // of direct reads; other reads fail with EINVAL
  std::uint64_t device = 1;                // that holds the files
};

// The real file system with faults. Direct files are imitated on buffered ones, so that a test does
// not depend on the file system below it: unaligned offset, size or memory is an EINVAL.
class FaultyFileSystem final : public io::FileSystem {
 public:
  explicit FaultyFileSystem(const Faults& faults) : faults_(faults) {}

  io::OpenResult open(const std::filesystem::path& path, io::Caching caching) override;

  io::ListResult list(const std::filesystem::path& directory) override {
    return io::posix_file_system().list(directory);
  }

  // Files whose path holds `name` suffer `faults` instead of those of the constructor. Before they
  // are opened.
  void add(const std::string& name, const Faults& faults);

  // Reads of files whose path holds `name` wait inside the system until release(). wait_held()
  // returns when `count` of them do.
  void hold(const std::string& name);
  void wait_held(int count);
  void release();

  [[nodiscard]] int reads() const { return reads_; }

  [[nodiscard]] int direct_reads() const { return direct_reads_; }

  [[nodiscard]] int opens() const { return opens_; }

  [[nodiscard]] std::uint64_t bytes_read() const { return bytes_read_; }

  [[nodiscard]] std::size_t largest_request() const { return largest_request_; }

 private:
  class FaultyFile;

  [[nodiscard]] const Faults& faults_of(const std::filesystem::path& path) const;
  void wait_while_held(const std::filesystem::path& path);
  void note_request(std::size_t bytes, bool direct);

  Faults faults_;
  std::deque<std::pair<std::string, Faults>> others_;  // files whose path holds the name
  std::atomic<int> reads_ = 0;
  std::atomic<int> direct_reads_ = 0;
  std::atomic<int> opens_ = 0;
  std::atomic<std::uint64_t> successes_ = 0;
  std::atomic<std::uint64_t> bytes_read_ = 0;
  std::atomic<std::size_t> largest_request_ = 0;
  std::mutex hold_mutex_;
  std::condition_variable hold_changed_;
  std::string held_name_;  // empty: nothing is held
  int held_ = 0;           // reads that wait
};

}  // namespace k3::test

// Threads that read windows of files, so that the disk works while the model computes.
//
// A request is an object of the caller: submitting, queueing and completing it allocate nothing.
// Experts are wanted now and go before the tape, which is read ahead. One pool serves one device:
// a slow disk holds no reader of another.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "k3/errors.h"

#include "io/window_file.h"

namespace k3::runtime {

enum class ReadPriority : std::uint8_t {
  kExpert,  // before every read of the tape that has not begun
  kTape,
};

inline constexpr std::size_t kReadPriorities = 2;

// One read: WindowFile::read(offset, bytes, buffer, kind) on a thread of the pool. Fill in the
// fields, submit it, and leave it alone until on_done(). Request, file and buffer live until then.
class ReadRequest {
 public:
  ReadRequest() = default;
  ReadRequest(const ReadRequest&) = delete;
  ReadRequest& operator=(const ReadRequest&) = delete;
  ReadRequest(ReadRequest&&) = delete;
  ReadRequest& operator=(ReadRequest&&) = delete;
  virtual ~ReadRequest() = default;

  io::WindowFile* file = nullptr;
  std::uint64_t offset = 0;         // of the payload in the file
  std::size_t bytes = 0;            // of the payload
  std::span<std::byte> buffer;      // for the window, see WindowFile::read
  ErrorKind kind = ErrorKind::kIo;  // of the error when it fails
  ReadPriority priority = ReadPriority::kTape;

  // Called exactly once for each submit, without a lock held: on a thread of the pool, or on the one
  // that drops or submits when the request is dropped. `payload` lies in `buffer`; it is null when
  // there is an error, to which `error` is the only reference. The pool does not touch the request after this call begins, which may
  // therefore submit it again, or let another thread destroy it.
  virtual void on_done(std::byte* payload, std::exception_ptr error) noexcept = 0;

 private:
  friend class ReaderPool;

  ReadRequest* next_ = nullptr;  // in the queue
};

// What the reads of one priority have done. Exact once their on_done() has been called.
struct ReadCounts {
  std::uint64_t reads = 0;          // complete
  std::uint64_t failures = 0;       // begun and not complete; not among the reads
  std::uint64_t payload_bytes = 0;  // of complete reads
  std::uint64_t window_bytes = 0;   // what the system delivered for them, payload included
  double reader_seconds = 0.0;      // inside reads, summed over the threads
  double busy_seconds = 0.0;        // of the wall clock, with at least one read under way
};

// `threads` readers and their queues.
class ReaderPool {
 public:
  // Starts a thread that runs `body`; tests replace it.
  using StartThread = std::function<std::thread(std::function<void()> body)>;

  // The threads leave signals to others. Throws Error(kMemory) when the system refuses a thread,
  // std::invalid_argument for no thread.
  explicit ReaderPool(std::size_t threads);
  ReaderPool(std::size_t threads, const StartThread& start);
  ReaderPool(const ReaderPool&) = delete;
  ReaderPool& operator=(const ReaderPool&) = delete;
  ReaderPool(ReaderPool&&) = delete;
  ReaderPool& operator=(ReaderPool&&) = delete;

  // Drops what is queued and waits for the reads under way.
  ~ReaderPool();

  // Queues a request behind those of its priority. After stop() it is dropped at once.
  void submit(ReadRequest& request) noexcept;

  // Takes a request out of its queue. True: it was there, and on_done() will not be called for it.
  // False: it is being read, or done.
  [[nodiscard]] bool cancel(ReadRequest& request) noexcept;

  // Completes the requests that no thread has begun with Error(kInterrupted). Those under way go on.
  void drop_queued() noexcept;

  // drop_queued(), then waits until the reads under way are done; the threads end. Not from
  // on_done().
  void stop() noexcept;

  [[nodiscard]] ReadCounts counts(ReadPriority priority) const;

  [[nodiscard]] std::size_t threads() const noexcept { return threads_.size(); }

 private:
  using Clock = std::chrono::steady_clock;

  // First in, first out.
  struct Queue {
    ReadRequest* first = nullptr;
    ReadRequest* last = nullptr;

    void push(ReadRequest& request) noexcept;
    ReadRequest* pop() noexcept;
    bool remove(ReadRequest& request) noexcept;
  };

  // Reads of one priority.
  struct Lane {
    Queue queue;
    ReadCounts counts;
    std::size_t active = 0;        // threads inside a read
    Clock::time_point busy_since;  // when `active` left 0
  };

  void run() noexcept;
  ReadRequest* take() noexcept;
  ReadRequest* wait_for_request();
  void serve(ReadRequest& request) noexcept;
  [[nodiscard]] Lane& lane_of(const ReadRequest& request) noexcept;

  mutable std::mutex mutex_;  // guards the lanes and stopping_
  std::condition_variable wake_;
  std::array<Lane, kReadPriorities> lanes_;  // [priority]
  bool stopping_ = false;
  std::mutex join_mutex_;  // one stop() at a time
  std::vector<std::thread> threads_;
};

// A pool for each device that holds a file.
class ReaderPools {
 public:
  explicit ReaderPools(std::size_t threads_per_device) : threads_(threads_per_device) {}

  // The pool of the file's device, started at the first call for that device; it lives as long as
  // this. Throws as the constructor of ReaderPool.
  [[nodiscard]] ReaderPool& pool_of(const io::WindowFile& file);

  void drop_queued() noexcept;

  // Sums over the devices; busy_seconds is that of the busiest, so that it stays below the wall.
  [[nodiscard]] ReadCounts counts(ReadPriority priority) const;

  [[nodiscard]] std::size_t devices() const;

 private:
  std::size_t threads_;
  mutable std::mutex mutex_;
  std::vector<std::pair<std::uint64_t, std::unique_ptr<ReaderPool>>> pools_;  // device, its pool
};

}  // namespace k3::runtime

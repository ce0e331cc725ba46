#include "runtime/reader_pool.h"

#include <pthread.h>

#include <algorithm>
#include <csignal>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

namespace k3::runtime {
namespace {

// While it lives, threads that start leave the signals that end or stop a program to the others, so
// that the handler runs where the program waits for it.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t blocked;
    sigemptyset(&blocked);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
      sigaddset(&blocked, signal);
    }
    pthread_sigmask(SIG_BLOCK, &blocked, &before_);
  }

  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  BlockedSignals(BlockedSignals&&) = delete;
  BlockedSignals& operator=(BlockedSignals&&) = delete;

 private:
  sigset_t before_ = {};
};

// An error of its own for each: whoever takes it may let it go on any thread.
std::exception_ptr dropped_error() {
  return std::make_exception_ptr(
      Error(ErrorKind::kInterrupted, "interrupted while reading weights"));
}

double seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

void ReaderPool::Queue::push(ReadRequest& request) noexcept {
  request.next_ = nullptr;
  (first == nullptr ? first : last->next_) = &request;
  last = &request;
}

ReadRequest* ReaderPool::Queue::pop() noexcept {
  ReadRequest* const request = first;
  if (request != nullptr) {
    first = request->next_;
  }
  return request;
}

bool ReaderPool::Queue::remove(ReadRequest& request) noexcept {
  ReadRequest* before = nullptr;
  for (ReadRequest* at = first; at != nullptr; before = at, at = at->next_) {
    if (at == &request) {
      (before == nullptr ? first : before->next_) = at->next_;
      last = last == at ? before : last;
      return true;
    }
  }
  return false;
}

ReaderPool::ReaderPool(std::size_t threads)
    : ReaderPool(threads, [](std::function<void()> body) { return std::thread(std::move(body)); }) {
}

ReaderPool::ReaderPool(std::size_t threads, const StartThread& start) {
  if (threads == 0) {
    throw std::invalid_argument("a pool of readers wants a thread");
  }
  threads_.reserve(threads);
  const BlockedSignals inherited;
  try {
    while (threads_.size() < threads) {
      threads_.push_back(start([this] { run(); }));
    }
  } catch (const std::system_error& fault) {
    const std::size_t started = threads_.size();
    stop();
    throw Error(ErrorKind::kMemory,
                ErrorDetail{.what = "cannot start a reader thread",
                            .expected = std::to_string(threads) + " threads",
                            .found = std::to_string(started) + ", then " + fault.what()});
  } catch (...) {
    stop();
    throw;
  }
}

ReaderPool::~ReaderPool() {
  stop();
}

ReaderPool::Lane& ReaderPool::lane_of(const ReadRequest& request) noexcept {
  return lanes_[static_cast<std::size_t>(request.priority)];
}

void ReaderPool::submit(ReadRequest& request) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!stopping_) {
      lane_of(request).queue.push(request);
      wake_.notify_one();
      return;
    }
  }
  request.on_done(nullptr, dropped_error());
}

bool ReaderPool::cancel(ReadRequest& request) noexcept {
  const std::lock_guard lock(mutex_);
  return lane_of(request).queue.remove(request);
}

void ReaderPool::drop_queued() noexcept {
  std::array<Queue, kReadPriorities> dropped;
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < kReadPriorities; ++i) {
      dropped[i] = std::exchange(lanes_[i].queue, Queue{});
    }
  }
  for (Queue& queue : dropped) {
    while (ReadRequest* const request = queue.pop()) {
      request->on_done(nullptr, dropped_error());
    }
  }
}

void ReaderPool::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
  }
  drop_queued();
  const std::lock_guard lock(join_mutex_);
  for (std::thread& thread : threads_) {
    if (thread.joinable()) {
      thread.join();
    }
  }
}

ReadCounts ReaderPool::counts(ReadPriority priority) const {
  const std::lock_guard lock(mutex_);
  const Lane& lane = lanes_[static_cast<std::size_t>(priority)];
  ReadCounts counts = lane.counts;
  if (lane.active > 0) {
    counts.busy_seconds += seconds(Clock::now() - lane.busy_since);
  }
  return counts;
}

void ReaderPool::run() noexcept {
  while (ReadRequest* const request = wait_for_request()) {
    serve(*request);
  }
}

// The first request of the first lane that has one, counted as under way; null when none has.
ReadRequest* ReaderPool::take() noexcept {
  for (Lane& lane : lanes_) {
    ReadRequest* const request = lane.queue.pop();
    if (request != nullptr) {
      if (lane.active++ == 0) {
        lane.busy_since = Clock::now();
      }
      return request;
    }
  }
  return nullptr;
}

// The next request; null when the pool stops.
ReadRequest* ReaderPool::wait_for_request() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (ReadRequest* const request = take()) {
      return request;
    }
    wake_.wait(lock);
  }
  return nullptr;
}

void ReaderPool::serve(ReadRequest& request) noexcept {
  Lane& lane = lane_of(request);
  const std::size_t bytes = request.bytes;
  const Clock::time_point begun = Clock::now();
  io::WindowRead read;
  std::exception_ptr error;
  try {
    read = request.file->read(request.offset, bytes, request.buffer, request.kind);
  } catch (...) {
    error = std::current_exception();
  }
  {
    const Clock::time_point now = Clock::now();
    const std::lock_guard lock(mutex_);
    ReadCounts& counts = lane.counts;
    if (error == nullptr) {
      counts.reads += 1;
      counts.payload_bytes += bytes;
      counts.window_bytes += read.read_bytes;
    } else {
      counts.failures += 1;
    }
    counts.reader_seconds += seconds(now - begun);
    if (--lane.active == 0) {
      counts.busy_seconds += seconds(now - lane.busy_since);
    }
  }
  request.on_done(read.payload, std::move(error));
}

ReaderPool& ReaderPools::pool_of(const io::WindowFile& file) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(pools_.begin(), pools_.end(),
                                  [&](const auto& entry) { return entry.first == file.device(); });
  if (found != pools_.end()) {
    return *found->second;
  }
  pools_.emplace_back(file.device(), std::make_unique<ReaderPool>(threads_));
  return *pools_.back().second;
}

void ReaderPools::drop_queued() noexcept {
  const auto pool_at = [&](std::size_t i) {
    const std::lock_guard lock(mutex_);
    return i < pools_.size() ? pools_[i].second.get() : nullptr;
  };
  // Without the lock: on_done() may ask for a pool.
  for (std::size_t i = 0; ReaderPool* const pool = pool_at(i); ++i) {
    pool->drop_queued();
  }
}

ReadCounts ReaderPools::counts(ReadPriority priority) const {
  const std::lock_guard lock(mutex_);
  ReadCounts sum;
  for (const auto& entry : pools_) {
    const ReadCounts counts = entry.second->counts(priority);
    sum.reads += counts.reads;
    sum.failures += counts.failures;
    sum.payload_bytes += counts.payload_bytes;
    sum.window_bytes += counts.window_bytes;
    sum.reader_seconds += counts.reader_seconds;
    sum.busy_seconds = std::max(sum.busy_seconds, counts.busy_seconds);
  }
  return sum;
}

std::size_t ReaderPools::devices() const {
  const std::lock_guard lock(mutex_);
  return pools_.size();
}

}  // namespace k3::runtime

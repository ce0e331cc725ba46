// Over 400 lines because every promise of the pool has its test.
#include "runtime/reader_pool.h"

#include <pthread.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstddef>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "k3/errors.h"

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

// The order in which requests end, and a way to wait for it.
class Finish {
 public:
  void add(int id) {
    const std::lock_guard lock(mutex_);
    order_.push_back(id);
    changed_.notify_all();
  }

  std::vector<int> wait(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return order_.size() >= count; });
    return order_;
  }

  [[nodiscard]] std::size_t count() {
    const std::lock_guard lock(mutex_);
    return order_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int> order_;
};

class TestRequest final : public ReadRequest {
 public:
  TestRequest(io::WindowFile& source, std::uint64_t at, std::size_t size, ReadPriority lane)
      : memory_(source.window_capacity(size), source.alignment()) {
    file = &source;
    offset = at;
    bytes = size;
    buffer = memory_.span();
    priority = lane;
  }

  void on_done(std::byte* payload, std::exception_ptr error) noexcept override {
    ++calls;
    failure = std::move(error);
    if (failure == nullptr) {
      text.assign(reinterpret_cast<const char*>(payload), bytes);
    }
    thread = std::this_thread::get_id();
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, nullptr, &mask);
    blocks_interrupts = sigismember(&mask, SIGINT) == 1;
    if (then) {
      then();
    }
    if (finish != nullptr) {
      finish->add(id);
    }
  }

  int id = 0;
  Finish* finish = nullptr;
  std::function<void()> then;
  int calls = 0;
  std::string text;
  std::exception_ptr failure;
  std::thread::id thread;
  bool blocks_interrupts = false;

 private:
  WindowBuffer memory_;
};

class ReaderPoolTest : public testing::Test {
 protected:
  ReaderPoolTest() {
    for (std::size_t i = 0; i < 100'000; ++i) {
      content_ += static_cast<char>(i % 251);
    }
    for (const char* name : {"a.bin", "b.bin"}) {
      test::write_file(dir_.path() / name, content_);
    }
  }

  [[nodiscard]] std::filesystem::path path(const std::string& name = "a.bin") const {
    return dir_.path() / name;
  }

  // A request that reports to finish_ under an id.
  TestRequest& request(io::WindowFile& file,
                       std::uint64_t offset,
                       std::size_t bytes,
                       ReadPriority priority = ReadPriority::kTape) {
    TestRequest& made = requests_.emplace_back(file, offset, bytes, priority);
    made.id = static_cast<int>(requests_.size()) - 1;
    made.finish = &finish_;
    return made;
  }

  test::TempDir dir_;
  std::string content_;
  Finish finish_;
  std::deque<TestRequest> requests_;
};

TEST_F(ReaderPoolTest, ReadsWhatIsAskedOnItsOwnThreads) {
  FaultyFileSystem file_system({});
  io::WindowFile file(file_system, path());
  ReaderPool pool(3);
  EXPECT_EQ(pool.threads(), 3U);
  for (std::size_t i = 0; i < 200; ++i) {
    request(file, i * 331, 1 + i * 7);
  }
  for (TestRequest& one : requests_) {
    pool.submit(one);
  }
  finish_.wait(200);
  for (const TestRequest& one : requests_) {
    EXPECT_EQ(one.text, content_.substr(one.offset, one.bytes));
    EXPECT_EQ(one.failure, nullptr);
    EXPECT_EQ(one.calls, 1);
    EXPECT_NE(one.thread, std::this_thread::get_id());
  }
}

TEST_F(ReaderPoolTest, ExpertsGoBeforeTheTapeAndEachInOrder) {
  FaultyFileSystem file_system({});
  io::WindowFile file(file_system, path());
  ReaderPool pool(1);
  file_system.hold("a.bin");
  pool.submit(request(file, 0, 10));  // 0: under way while the others queue up
  file_system.wait_held(1);
  pool.submit(request(file, 1, 10));                         // 1
  pool.submit(request(file, 2, 10));                         // 2
  pool.submit(request(file, 3, 10, ReadPriority::kExpert));  // 3
  pool.submit(request(file, 4, 10));                         // 4
  pool.submit(request(file, 5, 10, ReadPriority::kExpert));  // 5
  file_system.release();
  EXPECT_EQ(finish_.wait(6), (std::vector<int>{0, 3, 5, 1, 2, 4}));
}

TEST_F(ReaderPoolTest, CountsAreExact) {
  FaultyFileSystem file_system({});
  io::WindowFile file(file_system, path());
  ReaderPool pool(2);
  pool.submit(request(file, 1000, 100));                          // a window of 1024
  pool.submit(request(file, 512, 512));                           // 512
  pool.submit(request(file, 511, 2, ReadPriority::kExpert));      // 1024
  pool.submit(request(file, 99'999, 50, ReadPriority::kExpert));  // fails: beyond the end
  finish_.wait(4);
  const ReadCounts tape = pool.counts(ReadPriority::kTape);
  EXPECT_EQ(tape.reads, 2U);
  EXPECT_EQ(tape.failures, 0U);
  EXPECT_EQ(tape.payload_bytes, 612U);
  EXPECT_EQ(tape.window_bytes, 1536U);
  const ReadCounts experts = pool.counts(ReadPriority::kExpert);
  EXPECT_EQ(experts.reads, 1U);
  EXPECT_EQ(experts.failures, 1U);
  EXPECT_EQ(experts.payload_bytes, 2U);
  EXPECT_EQ(experts.window_bytes, 1024U);
  EXPECT_GT(tape.reader_seconds, 0.0);
  EXPECT_GT(tape.busy_seconds, 0.0);
}

TEST_F(ReaderPoolTest, BusyTimeCountsTheWallOnceAndReadsUnderWay) {
  FaultyFileSystem file_system({});
  io::WindowFile file(file_system, path());
  ReaderPool pool(4);
  file_system.hold("a.bin");
  const auto begun = std::chrono::steady_clock::now();
  for (int i = 0; i < 4; ++i) {
    pool.submit(request(file, 0, 10));
  }
  file_system.wait_held(4);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_GE(pool.counts(ReadPriority::kTape).busy_seconds, 0.02);  // all four are still held
  EXPECT_EQ(pool.counts(ReadPriority::kTape).reads, 0U);
  EXPECT_EQ(pool.counts(ReadPriority::kExpert).busy_seconds, 0.0);
  file_system.release();
  finish_.wait(4);
  pool.stop();
  const double wall =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  const ReadCounts counts = pool.counts(ReadPriority::kTape);
  EXPECT_LE(counts.busy_seconds, wall);
  EXPECT_GE(counts.reader_seconds, 4 * 0.02);
}

TEST_F(ReaderPoolTest, FailuresArriveAsTheErrorOfTheirKind) {
  FaultyFileSystem file_system({.eio_on_read = 2});
  io::WindowFile file(file_system, path());
  ReaderPool pool(1);
  for (int i = 0; i < 3; ++i) {
    request(file, 100, 1000).kind = ErrorKind::kExpertIo;
    pool.submit(requests_.back());
  }
  finish_.wait(3);
  EXPECT_EQ(requests_[0].text, content_.substr(100, 1000));
  ASSERT_NE(requests_[1].failure, nullptr);
  EXPECT_TRUE(throws(ErrorKind::kExpertIo,
                     {path().string(), "offset 100", "Input/output error", "expected 1000 bytes"},
                     [&] { std::rethrow_exception(requests_[1].failure); }));
  EXPECT_EQ(requests_[2].text, content_.substr(100, 1000));  // the pool goes on
}

TEST_F(ReaderPoolTest, BytesSurviveShortCountsInterruptionsAndFallbacks) {
  for (const Faults& faults :
       {Faults{.max_read_bytes = 1000}, Faults{.interruptions_per_read = 20},
        Faults{.max_read_bytes = 700, .interruptions_per_read = 3, .refuse_direct = true},
        Faults{.refuse_direct_reads = true}, Faults{.max_read_bytes = 50}}) {
    FaultyFileSystem file_system(faults);
    io::WindowFile file(file_system, path());
    ReaderPool pool(4);
    Finish finish;
    std::deque<TestRequest> requests;
    for (std::size_t i = 0; i < 40; ++i) {
      TestRequest& one = requests.emplace_back(file, i * 1777, 3001, ReadPriority::kTape);
      one.finish = &finish;
      pool.submit(one);
    }
    finish.wait(40);
    for (const TestRequest& one : requests) {
      EXPECT_EQ(one.text, content_.substr(one.offset, one.bytes));
    }
    EXPECT_EQ(pool.counts(ReadPriority::kTape).payload_bytes, 40U * 3001);
  }
}

TEST_F(ReaderPoolTest, ARequestMayBeSubmittedAgainWhenItIsDone) {
  FaultyFileSystem file_system({});
  io::WindowFile file(file_system, path());
  ReaderPool pool(2);
  TestRequest& one = request(file, 0, 600);
  one.then = [&] {
    if (one.calls < 50) {
      one.offset += 600;
      pool.submit(one);
    }
  };
  pool.submit(one);
  finish_.wait(50);
  EXPECT_EQ(one.text, content_.substr(49U * 600, 600));
  EXPECT_EQ(pool.counts(ReadPriority::kTape).reads, 50U);
}

TEST_F(ReaderPoolTest, CancelTakesBackWhatHasNotBegun) {
  FaultyFileSystem file_system({});
  io::WindowFile file(file_system, path());
  ReaderPool pool(1);
  file_system.hold("a.bin");
  for (int i = 0; i < 5; ++i) {
    request(file, static_cast<std::uint64_t>(i), 10);
  }
  pool.submit(requests_[0]);
  file_system.wait_held(1);
  for (std::size_t i = 1; i < 4; ++i) {
    pool.submit(requests_[i]);
  }
  EXPECT_FALSE(pool.cancel(requests_[0]));  // under way
  EXPECT_TRUE(pool.cancel(requests_[3]));   // the last,
  EXPECT_TRUE(pool.cancel(requests_[1]));   // the first of the queue
  EXPECT_FALSE(pool.cancel(requests_[1]));
  pool.submit(requests_[4]);  // the queue's end is right
  file_system.release();
  EXPECT_EQ(finish_.wait(3), (std::vector<int>{0, 2, 4}));
  pool.stop();
  EXPECT_EQ(requests_[1].calls, 0);
  EXPECT_EQ(requests_[3].calls, 0);
  EXPECT_FALSE(pool.cancel(requests_[2]));
}

TEST_F(ReaderPoolTest, StopFinishesWhatHasBegunAndDropsTheRest) {
  FaultyFileSystem file_system({});
  io::WindowFile file(file_system, path());
  {
    ReaderPool pool(2);
    file_system.hold("a.bin");
    pool.submit(request(file, 0, 10));
    pool.submit(request(file, 1, 10));
    file_system.wait_held(2);
    for (std::uint64_t i = 2; i < 6; ++i) {
      pool.submit(request(file, i, 10, i % 2 == 0 ? ReadPriority::kTape : ReadPriority::kExpert));
    }
    pool.drop_queued();
    EXPECT_EQ(finish_.count(), 4U);  // before the two that are held
    pool.submit(request(file, 6, 10));
    file_system.release();
    pool.stop();
    pool.stop();
    pool.submit(request(file, 7, 10));
    EXPECT_EQ(requests_.back().thread, std::this_thread::get_id());
  }
  finish_.wait(8);
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    const TestRequest& one = requests_[i];
    EXPECT_EQ(one.calls, 1) << i;
    if (i < 2) {
      EXPECT_EQ(one.text, content_.substr(one.offset, 10)) << i;
    } else if (i != 6) {  // 6 may have been begun
      EXPECT_TRUE(throws(ErrorKind::kInterrupted, {"interrupted while reading"},
                         [&] { std::rethrow_exception(one.failure); }));
    }
  }
}

TEST_F(ReaderPoolTest, DestructionDropsTheQueueAndWaitsForTheRest) {
  FaultyFileSystem file_system({});
  io::WindowFile file(file_system, path());
  auto pool = std::make_unique<ReaderPool>(1);
  file_system.hold("a.bin");
  pool->submit(request(file, 0, 10));
  file_system.wait_held(1);
  pool->submit(request(file, 1, 10));
  std::thread destroyer([&] { pool.reset(); });
  finish_.wait(1);  // the queued one, while the other is held
  EXPECT_EQ(requests_[1].calls, 1);
  EXPECT_NE(requests_[1].failure, nullptr);
  file_system.release();
  destroyer.join();
  EXPECT_EQ(requests_[0].text, content_.substr(0, 10));
}

TEST_F(ReaderPoolTest, ThreadsLeaveInterruptsToTheProgram) {
  FaultyFileSystem file_system({});
  io::WindowFile file(file_system, path());
  ReaderPool pool(1);
  pool.submit(request(file, 0, 10));
  finish_.wait(1);
  EXPECT_TRUE(requests_[0].blocks_interrupts);
  sigset_t mask;
  pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  EXPECT_EQ(sigismember(&mask, SIGINT), 0);  // the caller's own mask is as it was
}

TEST(ReaderPool, ARefusedThreadIsAnErrorAndLeaksNone) {
  std::atomic<int> running = 0;
  int started = 0;
  const auto start = [&](std::function<void()> body) {
    if (++started > 3) {
      throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
    }
    return std::thread([&running, run = std::move(body)] {
      ++running;
      run();
      --running;
    });
  };
  EXPECT_TRUE(
      throws(ErrorKind::kMemory,
             {"cannot start a reader thread", "expected 5 threads", "found 3", "temporarily"},
             [&] { const ReaderPool pool(5, start); }));
  EXPECT_EQ(running, 0);  // all three have ended
  EXPECT_THROW(ReaderPool(0), std::invalid_argument);
}

TEST_F(ReaderPoolTest, ASlowDeviceDoesNotHoldTheOther) {
  FaultyFileSystem file_system({.device = 1});
  file_system.add("b.bin", {.device = 2});
  io::WindowFile slow(file_system, path("a.bin"));
  io::WindowFile fast(file_system, path("b.bin"));
  ReaderPools pools(2);
  EXPECT_NE(&pools.pool_of(slow), &pools.pool_of(fast));
  EXPECT_EQ(&pools.pool_of(slow), &pools.pool_of(slow));
  EXPECT_EQ(pools.devices(), 2U);
  file_system.hold("a.bin");
  for (std::uint64_t i = 0; i < 4; ++i) {
    pools.pool_of(slow).submit(request(slow, i, 10));
  }
  file_system.wait_held(2);  // every reader of the slow device
  for (std::uint64_t i = 0; i < 20; ++i) {
    pools.pool_of(fast).submit(request(fast, i, 100));
  }
  EXPECT_EQ(finish_.wait(20).size(), 20U);  // those of the fast one, none of the slow one
  for (std::size_t i = 0; i < 24; ++i) {
    EXPECT_EQ(requests_[i].calls, i < 4 ? 0 : 1);
  }
  pools.drop_queued();
  EXPECT_EQ(finish_.wait(22).size(), 22U);
  file_system.release();
  finish_.wait(24);
  const ReadCounts counts = pools.counts(ReadPriority::kTape);
  EXPECT_EQ(counts.reads, 22U);
  EXPECT_EQ(counts.payload_bytes, 2U * 10 + 20U * 100);
}

TEST_F(ReaderPoolTest, FilesOfOneDeviceShareItsPool) {
  FaultyFileSystem file_system({.read_delay = std::chrono::microseconds(100)});
  io::WindowFile a(file_system, path("a.bin"));
  io::WindowFile b(file_system, path("b.bin"));
  ReaderPools pools(1);
  EXPECT_EQ(&pools.pool_of(a), &pools.pool_of(b));
  pools.pool_of(a).submit(request(a, 5, 10));
  pools.pool_of(b).submit(request(b, 6, 10));
  EXPECT_EQ(finish_.wait(2), (std::vector<int>{0, 1}));
  EXPECT_EQ(requests_[1].text, content_.substr(6, 10));
}

}  // namespace
}  // namespace k3::runtime

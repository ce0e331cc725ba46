// A forward pass allocates nothing once one of as many tokens has been done. Only latents grow, by a
// block of 64 positions per MLA layer.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "k3/engine.h"
#include "k3/generate.h"

#include "allocation/malloc_counter.h"
#include "base/aligned_buffer.h"
#include "base/parallel.h"
#include "kernels/attention.h"
#include "support/numbers.h"
#include "support/paths.h"

namespace k3 {
namespace {

using test::AllocationCount;

constexpr const char* kNotCounted =
    "this build does not count allocations: a sanitizer's malloc or another C library";

// Keeps the compiler from leaving an allocation out.
std::atomic<void*> sink = nullptr;

void use(void* memory) {
  sink.store(memory, std::memory_order_relaxed);
}

class AllocationCounts : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::allocations_are_counted()) {
      GTEST_SKIP() << kNotCounted;
    }
  }
};

// Allocations of a call.
template <typename Function>
std::size_t allocations_of(const Function& function) {
  const AllocationCount count;
  function();
  return count.so_far();
}

TEST_F(AllocationCounts, SeeEveryOperatorNew) {
  constexpr std::align_val_t kAlignment{64};
  const auto check = [](const auto& allocate, const auto& release) {
    EXPECT_EQ(allocations_of([&] {
                void* const memory = allocate();
                use(memory);
                release(memory);
              }),
              1U);
  };
  const auto plain = [](void* p) { ::operator delete(p); };
  const auto plain_array = [](void* p) { ::operator delete[](p); };
  const auto aligned = [](void* p) { ::operator delete(p, kAlignment); };
  const auto aligned_array = [](void* p) { ::operator delete[](p, kAlignment); };
  check([] { return ::operator new(8); }, plain);
  check([] { return ::operator new[](8); }, plain_array);
  check([] { return ::operator new(8, std::nothrow); }, plain);
  check([] { return ::operator new[](8, std::nothrow); }, plain_array);
  check([] { return ::operator new(8, kAlignment); }, aligned);
  check([] { return ::operator new[](8, kAlignment); }, aligned_array);
  check([] { return ::operator new(8, kAlignment, std::nothrow); }, aligned);
  check([] { return ::operator new[](8, kAlignment, std::nothrow); }, aligned_array);
}

TEST_F(AllocationCounts, SeeContainersBuffersAndOtherThreads) {
  EXPECT_EQ(allocations_of([] { use(std::vector<int>(3).data()); }), 1U);
  EXPECT_EQ(allocations_of([] { use(AlignedBuffer<float>(3).data()); }), 1U);
  const auto by_hand = [] {
    void* memory = std::calloc(1, 8);  // NOLINT(cppcoreguidelines-no-malloc)
    use(memory);
    memory = std::realloc(memory, 4096);  // NOLINT(cppcoreguidelines-no-malloc)
    use(memory);
    std::free(memory);  // NOLINT(cppcoreguidelines-no-malloc)
  };
  EXPECT_EQ(allocations_of(by_hand), 2U);
  const test::ScopedThreads scope(2);
  const auto on_threads = [] {
    parallel_for(4, 1, [](std::size_t) { use(std::make_unique<int>().get()); });
  };
  on_threads();
  EXPECT_EQ(allocations_of(on_threads), 4U);
}

// Model of tests/fixtures/models, threads.
class Forward : public testing::TestWithParam<std::tuple<const char*, int>> {
 protected:
  void SetUp() override {
    if (!test::allocations_are_counted()) {
      GTEST_SKIP() << kNotCounted;
    }
    const auto [model, threads] = GetParam();
    scope_ = std::make_unique<test::ScopedThreads>(threads);
    engine_ = std::make_unique<Engine>(
        EngineOptions{.model_dir = test::fixture(std::string("models/") + model),
                      .memory = {.sessions = 16},
                      .threads = threads});
    const std::size_t vocab = engine_->config().vocab_size;
    for (std::size_t i = 0; i < 256; ++i) {
      ids_.push_back(static_cast<std::int32_t>((i * i + 7 * i + 3) % vocab));
    }
    logits_.resize(kMostTokens * vocab);
  }

  Engine& engine() { return *engine_; }

  // The next `count` ids of a session, other ones for another `seed`.
  SessionStep step(Session& session, std::size_t count, std::size_t seed = 0) {
    return {&session, std::span(ids_).subspan(session.position() + seed, count), kRows};
  }

  // Allocations of a pass of these steps, with logits of two rows of each when it has them.
  std::size_t allocations_of_pass(std::vector<SessionStep> steps) {
    std::size_t wanted = 0;
    for (SessionStep& step : steps) {
      step.logit_rows = step.logit_rows.first(std::min(step.tokens.size(), kRows.size()));
      wanted += step.logit_rows.size();
    }
    const std::span<float> logits = std::span(logits_).first(wanted * engine_->config().vocab_size);
    return allocations_of([&] { engine_->forward(steps, logits); });
  }

  [[nodiscard]] std::size_t mla_layers() const {
    return static_cast<std::size_t>(std::ranges::count(engine_->config().is_mla, true));
  }

 private:
  static constexpr std::size_t kMostTokens = 32;
  static constexpr std::array<std::size_t, 2> kRows = {0, 1};

  std::unique_ptr<test::ScopedThreads> scope_;
  std::unique_ptr<Engine> engine_;
  std::vector<std::int32_t> ids_;
  std::vector<float> logits_;
};

TEST_P(Forward, OneTokenAfterAnother) {
  Session session = engine().new_session();
  EXPECT_GT(allocations_of_pass({step(session, 1)}), 0U) << "the workspace of the first pass";
  while (session.position() < kernels::kKeyBlock) {
    ASSERT_EQ(allocations_of_pass({step(session, 1)}), 0U) << "at " << session.position();
  }
}

TEST_P(Forward, ChunksOfNoMoreTokensThanBefore) {
  Session session = engine().new_session();
  allocations_of_pass({step(session, 9)});
  for (const std::size_t tokens : {9U, 9U, 1U, 8U, 2U, 9U, 9U}) {
    EXPECT_EQ(allocations_of_pass({step(session, tokens)}), 0U)
        << tokens << " tokens, to " << session.position();
  }
  ASSERT_LE(session.position(), kernels::kKeyBlock);
}

// The first pass was of one sequence; as many tokens may be of many.
TEST_P(Forward, MoreSequencesThanBefore) {
  Session a = engine().new_session();
  Session b = engine().new_session();
  Session c = engine().new_session();
  allocations_of_pass({step(a, 6)});
  allocations_of_pass({step(b, 3, 50)});
  allocations_of_pass({step(c, 1, 90)});
  EXPECT_EQ(allocations_of_pass({step(a, 1), step(b, 3, 50), step(c, 2, 90)}), 0U);
}

TEST_P(Forward, ABlockOfLatentsPerLayerAndSixtyFourPositions) {
  Session session = engine().new_session();
  while (session.position() < kernels::kKeyBlock) {
    allocations_of_pass({step(session, 16)});
  }
  // A block, and the lists of blocks when they grow.
  const std::size_t at_the_border = allocations_of_pass({step(session, 1)});
  EXPECT_GE(at_the_border, mla_layers());
  EXPECT_LE(at_the_border, 3 * mla_layers());
  EXPECT_EQ(allocations_of_pass({step(session, 16)}), 0U);
}

TEST_P(Forward, TheObserverIsNotCopied) {
  Session session = engine().new_session();
  std::size_t seen = 0;
  const std::array<char, 256> large = {};  // more than a std::function holds without allocating
  const ResidualObserver observer = [&seen, large](std::size_t, std::span<const float>) {
    seen += large.size();
  };
  const auto pass = [&] {
    SessionStep next = step(session, 1);
    next.logit_rows = {};
    engine().forward({&next, 1}, {}, {.observer = &observer});
  };
  pass();
  EXPECT_EQ(allocations_of(pass), 0U);
  EXPECT_GT(seen, 0U);
}

// What grows from token to token are the lists of ids alone, by doubling.
TEST_P(Forward, Generation) {
  const std::vector<std::int32_t> prompt = {3, 4, 5, 6, 7};
  std::vector<std::size_t> after_step;
  after_step.reserve(50);
  const AllocationCount count;
  const GenerateOptions options{.max_new_tokens = 50, .on_step = [&](const GenerateStep&) {
                                  after_step.push_back(count.so_far());
                                }};
  static_cast<void>(generate(engine(), prompt, options));
  ASSERT_EQ(after_step.size(), 50U);
  std::size_t steps_that_allocate = 0;
  for (std::size_t i = 1; i < after_step.size(); ++i) {
    steps_that_allocate += after_step[i] > after_step[i - 1] ? 1U : 0U;
  }
  EXPECT_LE(steps_that_allocate, 12U);
}

INSTANTIATE_TEST_SUITE_P(All,
                         Forward,
                         testing::Combine(testing::Values("demo", "deep", "odd", "nodense", "edge"),
                                          testing::Values(1, 2)),
                         [](const testing::TestParamInfo<std::tuple<const char*, int>>& parameter) {
                           return std::string(std::get<0>(parameter.param)) + "_" +
                                  std::to_string(std::get<1>(parameter.param)) + "_threads";
                         });

}  // namespace
}  // namespace k3

// Tokenizing: megabytes of one character, random bytes, prose; loading a vocabulary.
//
// The vocabulary is that of K3_TOK_FILES or ../shared/kimi-k3-tokenizer, the released one, where
// there is one; else the small one of the tests. `ids` of the benchmark `load` tells which.
//
//   tokenizer_bench --benchmark_filter=one_letter
//
// `bytes_per_second` at sizes n and 2n shows whether the time is linear; summary lines named BigO do.

#include <sys/resource.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <string_view>

#include <benchmark/benchmark.h>

#include "k3/tokenizer.h"
#include "k3/tokenizer_files.h"

#include <malloc.h>

namespace {

namespace fs = std::filesystem;

fs::path vocabulary_directory() {
  const fs::path source = K3_SOURCE_DIR;
  const fs::path released = source.parent_path() / "shared" / "kimi-k3-tokenizer";
  return k3::tokenizer_directory(
      std::nullopt, fs::exists(released) ? released : source / "tests" / "fixtures" / "tokenizer");
}

const k3::Tokenizer& tokenizer() {
  static const k3::Tokenizer kTokenizer = k3::load_tokenizer(vocabulary_directory());
  return kTokenizer;
}

std::string repeated(std::string_view unit, std::size_t size) {
  std::string text;
  while (text.size() + unit.size() <= size) {
    text += unit;
  }
  return text;
}

std::string random_text(std::size_t size, unsigned least, unsigned count) {
  std::mt19937 random(1);
  std::string text;
  while (text.size() < size) {
    text += static_cast<char>(least + random() % count);
  }
  return text;
}

void encode(benchmark::State& state, const std::string& text) {
  std::size_t tokens = 0;
  while (state.KeepRunning()) {
    const auto ids = tokenizer().encode(text);
    tokens = ids.size();
    benchmark::DoNotOptimize(ids.data());
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text.size()));
  state.SetComplexityN(state.range(0));
  state.counters["tokens"] = static_cast<double>(tokens);
}

void encode_repeated(benchmark::State& state, std::string_view unit) {
  encode(state, repeated(unit, static_cast<std::size_t>(state.range(0))));
}

void encode_random(benchmark::State& state, unsigned least, unsigned count) {
  encode(state, random_text(static_cast<std::size_t>(state.range(0)), least, count));
}

constexpr std::string_view kProse =
    "The capital of France is Paris; it's home to 2,102,650 people. 你好,世界!\n"
    "    if (value == nullptr) {\r\n        return 0;\r\n    }\n";

void sizes(benchmark::internal::Benchmark* benchmark) {
  for (const std::int64_t size : {250'000, 500'000, 1'000'000, 2'000'000}) {
    benchmark->Arg(size);
  }
  benchmark->Unit(benchmark::kMillisecond)->Complexity();
}

BENCHMARK_CAPTURE(encode_repeated, one_letter, "a")->Apply(sizes);
BENCHMARK_CAPTURE(encode_repeated, one_han, "\u4f60")->Apply(sizes);
BENCHMARK_CAPTURE(encode_repeated, blanks, " ")->Apply(sizes);
BENCHMARK_CAPTURE(encode_repeated, exclamation_marks, "!")->Apply(sizes);
BENCHMARK_CAPTURE(encode_repeated, line_ends, "\n")->Apply(sizes);
BENCHMARK_CAPTURE(encode_repeated, prose, kProse)->Apply(sizes);
BENCHMARK_CAPTURE(encode_random, bytes, 0, 256)->Apply(sizes);
BENCHMARK_CAPTURE(encode_random, letters, 'a', 26)->Apply(sizes);

// With the reading of the files. `grown_MB` is how far the first load of this process pushed its
// peak, so run it alone: --benchmark_filter=load.
void load(benchmark::State& state) {
  const auto peak = [] {
    rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_maxrss) * 1024.0;
  };
  const double before = peak();
  double grown = -1.0;
  std::size_t size = 0;
  while (state.KeepRunning()) {
    const k3::Tokenizer loaded = k3::load_tokenizer(vocabulary_directory());
    size = loaded.vocab_size();
    if (grown < 0.0) {
      grown = peak() - before;
    }
  }
  state.counters["ids"] = static_cast<double>(size);
  state.counters["grown_MB"] = grown / 1e6;
}

BENCHMARK(load)->Unit(benchmark::kMillisecond)->Iterations(10);

}  // namespace

int main(int argc, char** argv) {
  // Memory stays with the process: else some sizes pay for new pages in each iteration and others
  // do not, which tells about malloc's thresholds and not about growth with size.
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
    return 1;
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

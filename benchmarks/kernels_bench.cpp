// Kernels at the released sizes as fractions of what the machine can do, both measured in this run.
//
// Every row prints GB/s of weights and GFLOP/s, and `of_limit`: its share of the read bandwidth (one
// vector) or of the float32 multiply-add peak of its instruction set (batches). Weights are taken
// from a pool larger than any cache, another matrix every time. benchmarks/summary.py makes the table
// of docs/performance.md from the JSON output.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/aligned_buffer.h"
#include "base/float_bits.h"
#include "base/parallel.h"
#include "benchmarks/limits.h"
#include "benchmarks/weight_pool.h"
#include "benchmarks/yardstick.h"
#include "kernels/isa.h"
#include "kernels/kda.h"
#include "kernels/products.h"

namespace k3::bench {
namespace {

using kernels::KernelTable;

constexpr std::size_t kRounds = 5;

AlignedBuffer<std::byte>& pool() {
  static AlignedBuffer<std::byte> buffer = make_weight_pool();
  return buffer;
}

const LimitLoops& limits_of(const KernelTable& table) {
  return std::strcmp(table.name, "avx512") == 0 ? avx512_limits() : avx2_limits();
}

// Bytes a second: the better of plain and prefetched sums, on all threads in use.
double read_limit(const KernelTable& table) {
  const auto measure = [&](bool prefetch) {
    const auto threads = static_cast<std::size_t>(thread_count());
    const std::size_t floats = kPoolBytes / sizeof(float) / threads;
    const auto* data = reinterpret_cast<const float*>(pool().data());
    return median_seconds(kRounds, [&] {
      parallel_for(threads, kMinParallelWork, [&](std::size_t t) {
        benchmark::DoNotOptimize(limits_of(table).sum(data + t * floats, floats, prefetch));
      });
    });
  };
  return static_cast<double>(kPoolBytes) / std::min(measure(false), measure(true));
}

// Float operations a second (a multiply-add counts two) on all threads in use.
double fma_limit(const KernelTable& table) {
  constexpr std::size_t kFmaRounds = 5'000'000;
  const auto threads = static_cast<std::size_t>(thread_count());
  const double seconds = median_seconds(kRounds, [&] {
    parallel_for(threads, kMinParallelWork, [&](std::size_t /*t*/) {
      benchmark::DoNotOptimize(limits_of(table).multiply_add(kFmaRounds));
    });
  });
  return 2.0 * limits_of(table).fma_per_round * kFmaRounds * static_cast<double>(threads) / seconds;
}

enum class Type {
  kBf16,
  kF32,
  kMxfp4
};

struct Shape {
  const char* name;
  Type type;
  std::size_t rows;
  std::size_t cols;
};

std::size_t matrix_bytes(const Shape& s) {
  switch (s.type) {
    case Type::kBf16:
      return s.rows * s.cols * 2;
    case Type::kF32:
      return s.rows * s.cols * 4;
    case Type::kMxfp4:
      return s.rows * (s.cols / 2 + s.cols / 32);
  }
  return 0;
}

// The index-th matrix of the pool, MXFP4 scales behind the codes.
MatrixView matrix_of(const Shape& s, std::size_t index) {
  const std::byte* bytes = pool().data() + index % (kPoolBytes / matrix_bytes(s)) * matrix_bytes(s);
  switch (s.type) {
    case Type::kBf16:
      return Bf16Matrix{reinterpret_cast<const std::uint16_t*>(bytes), s.rows, s.cols, s.cols};
    case Type::kF32:
      return F32Matrix{reinterpret_cast<const float*>(bytes), s.rows, s.cols, s.cols};
    case Type::kMxfp4: {
      const auto* packed = reinterpret_cast<const std::uint8_t*>(bytes);
      return Mxfp4Matrix{packed,     packed + s.rows * s.cols / 2, s.rows, s.cols, s.cols / 2,
                         s.cols / 32};
    }
  }
  return {};
}

// Bytes of weights a second of the C engine's way on the same matrix, on all threads in use.
double c_engine_rate(const Shape& shape) {
  const std::vector<double> x(shape.cols, 0.25);
  std::vector<float> y(shape.rows);
  std::size_t index = 0;
  const auto threads = static_cast<std::size_t>(thread_count());
  const double seconds = median_seconds(kRounds, [&] {
    const auto matrix = std::get<Mxfp4Matrix>(matrix_of(shape, index++));
    parallel_for(threads, kMinParallelWork, [&](std::size_t t) {
      const std::size_t first = shape.rows * t / threads;
      const std::size_t last = shape.rows * (t + 1) / threads;
      c_engine_multiply(slice_rows(matrix, first, last - first), x.data(), y.data() + first);
    });
  });
  benchmark::DoNotOptimize(y.data());
  return static_cast<double>(matrix_bytes(shape)) / seconds;
}

void run_product(benchmark::State& state, const KernelTable& table, const Shape& shape) {
  const auto tokens = static_cast<std::size_t>(state.range(0));
  set_thread_count(static_cast<int>(state.range(1)));
  kernels::force_table(table);
  // Measured right before, so that both see the machine in the same state.
  const double limit = tokens == 1 ? read_limit(table) : fma_limit(table);
  std::vector<float> x(tokens * shape.cols, 0.25F);
  std::vector<float> y(tokens * shape.rows);
  AlignedBuffer<float> scratch(kernels::product_scratch_floats(shape.cols, tokens));
  std::size_t index = 0;
  double seconds = 0.0;
  for (auto unused : state) {
    static_cast<void>(unused);
    const double elapsed = seconds_of([&] {
      kernels::multiply(matrix_of(shape, index++), {x.data(), tokens, shape.cols}, scratch.data(),
                        {y.data(), shape.rows});
    });
    state.SetIterationTime(elapsed);
    seconds += elapsed;
  }
  benchmark::DoNotOptimize(y.data());
  const double count = static_cast<double>(state.iterations());
  const double bytes = count * static_cast<double>(matrix_bytes(shape)) / seconds;
  const double flops =
      count * 2.0 * static_cast<double>(shape.rows * shape.cols * tokens) / seconds;
  state.counters["GB/s"] = bytes / 1e9;
  state.counters["GFLOP/s"] = flops / 1e9;
  state.counters[tokens == 1 ? "read_limit_GB/s" : "fma_limit_GFLOP/s"] = limit / 1e9;
  if (tokens == 1 && shape.type == Type::kMxfp4) {
    state.counters["x_c_engine"] = bytes / c_engine_rate(shape);
  }
  state.counters["of_limit"] = (tokens == 1 ? bytes : flops) / limit;
}

constexpr std::size_t kHeads = 96;
constexpr std::size_t kHeadDim = 128;

// One KDA step of all heads against an in-place sweep of the same state.
void run_kda(benchmark::State& state, const KernelTable& table) {
  set_thread_count(static_cast<int>(state.range(0)));
  AlignedBuffer<float> s(kHeads * kHeadDim * kHeadDim);
  const std::vector<float> q(kHeadDim, 0.1F);
  const std::vector<float> alpha(kHeadDim, 0.99F);
  std::vector<float> out(kHeads * kHeadDim);
  const kernels::KdaStep step{q.data(), q.data(), q.data(), alpha.data(), 0.5F};
  const double sweep = median_seconds(kRounds, [&] {
    parallel_for(kHeads, kMinParallelWork, [&](std::size_t h) {
      float* part = s.data() + h * kHeadDim * kHeadDim;
      for (std::size_t i = 0; i < kHeadDim * kHeadDim; ++i) {
        part[i] += 1e-6F;
      }
    });
  });
  double seconds = 0.0;
  for (auto unused : state) {
    static_cast<void>(unused);
    const double elapsed = seconds_of([&] {
      parallel_for(kHeads, kMinParallelWork, [&](std::size_t h) {
        table.kda_step(step, kHeadDim, s.data() + h * kHeadDim * kHeadDim,
                       out.data() + h * kHeadDim);
      });
    });
    state.SetIterationTime(elapsed);
    seconds += elapsed;
  }
  state.counters["of_limit"] = sweep / (seconds / static_cast<double>(state.iterations()));
}

using Elementwise = void (*)(const KernelTable& table, std::vector<float>& values);

void run_elementwise(benchmark::State& state, const KernelTable& table, Elementwise function) {
  std::vector<float> values(4096);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i) * 0.002F - 4.0F;
  }
  std::vector<float> work = values;
  double seconds = 0.0;
  for (auto unused : state) {
    static_cast<void>(unused);
    work = values;
    const double elapsed = seconds_of([&] { function(table, work); });
    benchmark::DoNotOptimize(work.data());
    state.SetIterationTime(elapsed);
    seconds += elapsed;
  }
  state.counters["ns/element"] =
      seconds * 1e9 / static_cast<double>(state.iterations()) / static_cast<double>(values.size());
}

// Error of the products against an exact sum, over the rms of the outputs (engine.md's bound: rms 2e-7,
// maximum 1e-6). All instruction sets give the same bits, so there is one row for all.
void run_error(benchmark::State& state, std::size_t cols, bool outliers) {
  constexpr std::size_t kRows = 512;
  std::mt19937_64 random(cols + (outliers ? 1U : 0U));
  std::normal_distribution<float> normal;
  std::vector<std::uint16_t> weights(kRows * cols);
  std::ranges::generate(weights, [&] {
    return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(normal(random)) >> 16U);
  });
  std::vector<float> x(cols);
  std::ranges::generate(x, [&] { return normal(random); });
  for (std::size_t i = 0; outliers && i < 8; ++i) {
    x[i * cols / 8] *= 100.0F;
  }
  std::vector<float> y(kRows);
  AlignedBuffer<float> scratch(kernels::product_scratch_floats(cols, 1));
  for (auto unused : state) {
    static_cast<void>(unused);
    kernels::multiply(Bf16Matrix{weights.data(), kRows, cols, cols}, {x.data(), 1, cols},
                      scratch.data(), {y.data(), kRows});
  }
  long double outputs = 0.0L;
  long double errors = 0.0L;
  long double most = 0.0L;
  for (std::size_t r = 0; r < kRows; ++r) {
    long double sum = 0.0L;
    for (std::size_t i = 0; i < cols; ++i) {
      sum += static_cast<long double>(bf16_to_float(weights[r * cols + i])) * x[i];
    }
    const long double error = y[r] - sum;
    outputs += sum * sum;
    errors += error * error;
    most = std::max(most, std::fabs(error));
  }
  state.counters["rms_error"] = static_cast<double>(std::sqrt(errors / outputs));
  state.counters["max_error"] = static_cast<double>(most / std::sqrt(outputs / kRows));
}

constexpr Shape kShapes[] = {
    {"bf16_7168x12288", Type::kBf16, 7168, 12288},
    {"bf16_33792x7168", Type::kBf16, 33792, 7168},
    {"bf16_24576x512", Type::kBf16, 24576, 512},
    {"bf16_head_slice_16384x7168", Type::kBf16, 16384, 7168},
    {"f32_7168x7168", Type::kF32, 7168, 7168},
    {"mxfp4_3584x3072", Type::kMxfp4, 3584, 3072},
    {"mxfp4_3072x3584", Type::kMxfp4, 3072, 3584},
};

void register_elementwise(const KernelTable& table, const char* name, Elementwise function) {
  benchmark::RegisterBenchmark(
      (std::string(table.name) + "/" + name).c_str(),
      [&table, function](benchmark::State& state) { run_elementwise(state, table, function); })
      ->UseManualTime();
}

void register_errors() {
  for (const std::size_t cols : {7168U, 33792U}) {
    for (const bool outliers : {false, true}) {
      const std::string name =
          "error/bf16_" + std::to_string(cols) + (outliers ? "_outliers_x100" : "");
      benchmark::RegisterBenchmark(name.c_str(), [cols, outliers](benchmark::State& state) {
        run_error(state, cols, outliers);
      })->Iterations(1);
    }
  }
}

void register_all() {
  register_errors();
  for (const KernelTable* table : kernels::supported_tables()) {
    const std::string isa = table->name;
    if (isa == "scalar") {
      continue;  // the contract, not a contender
    }
    for (const Shape& shape : kShapes) {
      auto* bench = benchmark::RegisterBenchmark(
          (isa + "/" + shape.name).c_str(),
          [table, &shape](benchmark::State& state) { run_product(state, *table, shape); });
      bench->ArgNames({"tokens", "threads"})->UseManualTime()->Unit(benchmark::kMillisecond);
      for (const std::int64_t tokens : {1, 8, 32, 128}) {
        bench->Args({tokens, 1})->Args({tokens, 2});
      }
    }
    benchmark::RegisterBenchmark((isa + "/kda_step_96x128x128").c_str(),
                                 [table](benchmark::State& state) { run_kda(state, *table); })
        ->ArgNames({"threads"})
        ->Arg(1)
        ->Arg(2)
        ->UseManualTime();
    register_elementwise(*table, "exp", [](const KernelTable& t, std::vector<float>& v) {
      t.exponentials(v.data(), v.size(), 0.0F);
    });
    register_elementwise(*table, "sigmoid", [](const KernelTable& t, std::vector<float>& v) {
      t.sigmoid(v.data(), v.size());
    });
    register_elementwise(*table, "tanh", [](const KernelTable& t, std::vector<float>& v) {
      t.tanh(v.data(), v.size());
    });
  }
}

}  // namespace
}  // namespace k3::bench

int main(int argc, char** argv) {
  k3::bench::register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
    return 2;
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

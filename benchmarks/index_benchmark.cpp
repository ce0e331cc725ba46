// Time and memory of indexing a checkpoint directory, and of binding it.
//
//   k3-index-benchmark DIRECTORY [RUNS]
//
// DIRECTORY holds config.json and shards, e.g. from k3-make-replica. Each run happens in its own
// process, so that the growth of the resident set belongs to that run alone.

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "io/checkpoint_index.h"
#include "io/config_reader.h"
#include "runtime/checkpoint.h"

namespace {

struct Measurement {
  double index_seconds = 0.0;
  double bind_seconds = 0.0;      // a second index and the binding of every tensor
  std::uint64_t peak_growth = 0;  // bytes of resident set while indexing
  std::uint64_t index_bytes = 0;  // the index's own account
  std::uint64_t tensors = 0;
  std::uint64_t shards = 0;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::uint64_t peak_bytes() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

Measurement measure(const std::filesystem::path& directory) {
  Measurement result;
  const k3::ModelConfig config = k3::io::read_config(directory / "config.json");
  const std::uint64_t before = peak_bytes();
  auto start = std::chrono::steady_clock::now();
  {
    const k3::io::CheckpointIndex index(k3::io::posix_file_system(), directory);
    result.index_seconds = seconds_since(start);
    result.peak_growth = peak_bytes() - before;
    result.index_bytes = index.memory_bytes();
    result.tensors = index.tensor_count();
    result.shards = index.shard_count();
  }
  start = std::chrono::steady_clock::now();
  const k3::runtime::Checkpoint checkpoint(k3::io::posix_file_system(), directory, config);
  result.bind_seconds = seconds_since(start);
  return result;
}

// Measures in a child, which sends its result through a pipe. False when the child failed.
bool measure_in_child(const std::filesystem::path& directory, Measurement& result) {
  std::array<int, 2> ends = {};
  if (pipe(ends.data()) != 0) {
    return false;
  }
  const pid_t child = fork();
  if (child == 0) {
    int status = EXIT_FAILURE;
    try {
      const Measurement measured = measure(directory);
      status = write(ends[1], &measured, sizeof(measured)) == sizeof(measured) ? EXIT_SUCCESS
                                                                               : EXIT_FAILURE;
    } catch (const std::exception& fault) {
      std::cerr << fault.what() << "\n";
    }
    _exit(status);
  }
  close(ends[1]);
  const ssize_t got = read(ends[0], &result, sizeof(result));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0 && got == sizeof(result);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::cerr << "usage: k3-index-benchmark DIRECTORY [RUNS]\n";
    return 2;
  }
  const int runs = argc == 3 ? std::max(1, std::atoi(argv[2])) : 7;
  std::vector<double> index_seconds;
  std::vector<double> bind_seconds;
  std::uint64_t peak_growth = 0;
  Measurement last;
  for (int run = 0; run < runs; ++run) {
    if (!measure_in_child(argv[1], last)) {
      return EXIT_FAILURE;
    }
    index_seconds.push_back(last.index_seconds);
    bind_seconds.push_back(last.bind_seconds);
    peak_growth = std::max(peak_growth, last.peak_growth);
  }
  std::cout << last.tensors << " tensors in " << last.shards << " shards, median of " << runs
            << " runs\n"
            << "index        " << median(index_seconds) << " s\n"
            << "index + bind " << median(bind_seconds) << " s\n"
            << "index holds  " << static_cast<double>(last.index_bytes) / 1e6 << " MB\n"
            << "peak growth  " << static_cast<double>(peak_growth) / 1e6 << " MB\n";
  return EXIT_SUCCESS;
}

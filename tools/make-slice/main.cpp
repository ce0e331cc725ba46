// k3-make-slice: writes a checkpoint of the released widths with random weights.

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <string>

#include <CLI/CLI.hpp>

#include "base/host.h"
#include "slice.h"
#include "tool_main.h"

namespace {

std::atomic<bool> stop_requested = false;
static_assert(std::atomic<bool>::is_always_lock_free);  // a signal handler sets it

extern "C" void request_stop(int /*signal*/) {
  stop_requested = true;
}

struct Arguments {
  std::string directory;
  k3::tools::SliceShape shape;
  std::uint64_t seed = 1;
  std::size_t threads = 0;  // 0: the cores of this process
};

void declare(CLI::App& app, Arguments& arguments) {
  app.add_option("directory", arguments.directory, "Where to write: absent or empty")->required();
  app.add_option("--layers", arguments.shape.layers,
                 "Kinds of the layers: kda, mla, and kda-dense, mla-dense for the first ones\n"
                 "[kda-dense,kda,kda,mla,kda,kda,mla]")
      ->delimiter(',');
  app.add_option("--experts", arguments.shape.experts,
                 "Experts a layer, at least 16; a token uses 16 [32]");
  app.add_option("--vocab", arguments.shape.vocabulary, "Vocabulary [4096]");
  app.add_option("--width-divisor", arguments.shape.width_divisor,
                 "Divides widths and numbers of heads, for tests: 1, 2, 4, 8 or 16 [1]");
  app.add_option("--seed", arguments.seed, "Of the weights [1]");
  app.add_option("--threads", arguments.threads, "Change speed, not bytes [cores]")
      ->check(CLI::Range(1, 1024));
}

void run(const Arguments& arguments) {
  const k3::ModelConfig config = k3::tools::slice_config(arguments.shape);
  const std::size_t threads =
      arguments.threads != 0 ? arguments.threads : static_cast<std::size_t>(k3::default_threads());
  const auto begun = std::chrono::steady_clock::now();
  const k3::tools::SliceFacts facts =
      k3::tools::write_slice(config, arguments.directory,
                             {.seed = arguments.seed, .threads = threads, .stop = &stop_requested});
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  const double gigabytes = static_cast<double>(facts.shard_bytes) / 1e9;
  std::printf("%zu tensors in %zu shards, %.3f GB, written in %.1f s, %.2f GB/s\n", facts.tensors,
              facts.shards, gigabytes, seconds, gigabytes / seconds);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Writes a checkpoint with the released widths and random weights: any layers, fewer "
      "experts,\n"
      "a short vocabulary. Its ids mean nothing; its sizes are real. The same seed gives the same\n"
      "bytes.",
      "k3-make-slice");
  Arguments arguments;
  declare(app, arguments);
  return k3::tools::tool_main(app, argc, argv, [&] {
    std::signal(SIGINT, request_stop);
    std::signal(SIGTERM, request_stop);
    run(arguments);
  });
}

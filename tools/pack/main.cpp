// k3-pack: copies the trunk of a model into trunk.bin and trunk.json.

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "k3/config.h"
#include "k3/errors.h"

#include "io/config_reader.h"
#include "io/file.h"
#include "packer.h"
#include "progress.h"
#include "runtime/checkpoint.h"
#include "tool_main.h"

namespace {

using k3::Error;
using k3::ErrorDetail;
using k3::ErrorKind;
using k3::tools::PackFacts;
using k3::tools::PackOptions;
using k3::tools::Progress;

std::atomic<bool> stop_requested = false;
static_assert(std::atomic<bool>::is_always_lock_free);  // a signal handler sets it

// The first one asks to stop, the second one ends the process.
extern "C" void request_stop(int /*signal*/) {
  if (stop_requested.exchange(true)) {
    _exit(k3::exit_status(ErrorKind::kInterrupted));
  }
}

struct Arguments {
  std::vector<std::string> directories;  // model, trunk; the first may come from K3_MODEL_DIR
  std::string config;                    // empty: config.json of the model
  std::size_t layers = 0;                // 0: all
  bool check = false;
  bool force = false;
  bool read_back = false;
  bool quiet = false;
  bool no_progress = false;
  bool json = false;
};

void declare(CLI::App& app, Arguments& arguments) {
  app.add_option(
         "directories", arguments.directories,
         "MODEL_DIR TRUNK_DIR: where the shards are, and where trunk.bin and trunk.json go\n"
         "(made when absent). With TRUNK_DIR alone the model is that of K3_MODEL_DIR.")
      ->required()
      ->expected(1, 2);
  app.add_option("--layers", arguments.layers,
                 "Pack the first N layers only; the shards of later ones may be missing")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 20U));
  app.add_option("--config", arguments.config, "Another config file [MODEL_DIR/config.json]");
  CLI::Option* const check = app.add_flag(
      "--check", arguments.check,
      "Write nothing: compare the packed trunk with the shards, byte by byte, and with its\n"
      "checksums");
  app.add_flag("--force", arguments.force, "Replace another trunk that TRUNK_DIR holds")
      ->excludes(check);
  app.add_flag("--read-back", arguments.read_back,
               "Read the whole trunk again from the device before it is accepted")
      ->excludes(check);
  app.add_flag("--json", arguments.json, "Print the result as JSON");
  app.add_flag("--no-progress", arguments.no_progress, "No progress on standard error");
  app.add_flag("--quiet", arguments.quiet, "Print nothing but errors (and JSON)");
}

struct Place {
  std::filesystem::path model;
  std::filesystem::path trunk;
};

Place place_of(const Arguments& arguments) {
  const char* const default_model = std::getenv("K3_MODEL_DIR");
  Place place{.model = default_model == nullptr ? "" : default_model,
              .trunk = arguments.directories.back()};
  if (arguments.directories.size() == 2) {
    place.model = arguments.directories.front();
  }
  if (place.model.empty() || place.trunk.empty()) {
    throw Error(ErrorKind::kUsage,
                "name MODEL_DIR and TRUNK_DIR, or TRUNK_DIR with K3_MODEL_DIR set");
  }
  return place;
}

k3::ModelConfig config_of(const Arguments& arguments, const Place& place) {
  const std::filesystem::path path = arguments.config.empty()
                                         ? place.model / "config.json"
                                         : std::filesystem::path(arguments.config);
  k3::ModelConfig config = k3::io::read_config(path);
  if (arguments.layers > config.num_hidden_layers) {
    throw Error(ErrorKind::kUsage,
                ErrorDetail{.what = "--layers",
                            .where = "",
                            .expected = "1 to " + std::to_string(config.num_hidden_layers),
                            .found = std::to_string(arguments.layers)});
  }
  if (arguments.layers != 0) {
    config.num_hidden_layers = arguments.layers;
  }
  return config;
}

void print_json(const Place& place,
                const Arguments& arguments,
                const PackFacts& facts,
                double seconds) {
  const nlohmann::ordered_json report = {
      {"action", arguments.check ? "check" : "pack"},
      {"trunk", place.trunk.string()},
      {"layers", facts.layers},
      {"tensors", facts.tensors},
      {"bytes", facts.bytes},
      {"copied_bytes", facts.copied_bytes},
      {"kept_layers", facts.kept_layers},
      {"already_packed", facts.already_packed},
      {"direct_writes", facts.direct_writes},
      {"seconds", seconds},
  };
  const std::string text =
      report.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  std::printf("%s\n", text.c_str());
}

void print_text(const Place& place,
                const Arguments& arguments,
                const PackFacts& facts,
                double seconds) {
  const std::string trunk = place.trunk.string();
  const double gigabytes = static_cast<double>(facts.bytes) / 1e9;
  if (facts.already_packed) {
    std::printf(
        "%s holds this trunk already: %zu layers, %zu tensors, %.3f GB; --check compares it\n",
        trunk.c_str(), facts.layers, facts.tensors, gigabytes);
    return;
  }
  const double moved =
      static_cast<double>(arguments.check ? facts.bytes : facts.copied_bytes) / 1e9;
  std::printf("%s %s: %zu layers, %zu tensors, %.3f GB in %.1f s, %.2f GB/s\n", trunk.c_str(),
              arguments.check ? "equals the shards" : "packed", facts.layers, facts.tensors,
              gigabytes, seconds, moved / seconds);
  if (facts.kept_layers > 0) {
    std::printf("%zu layers were kept from an interrupted run, their checksums verified\n",
                facts.kept_layers);
  }
}

void run(const Arguments& arguments) {
  const Place place = place_of(arguments);
  const k3::ModelConfig config = config_of(arguments, place);
  k3::io::FileSystem& files = k3::io::posix_file_system();
  const k3::runtime::Checkpoint checkpoint(files, place.model, config);
  const PackOptions options{.reading = {},
                            .force = arguments.force,
                            .read_back = arguments.read_back,
                            .stop = &stop_requested};
  Progress progress(arguments.quiet || arguments.no_progress ? Progress::Style::kNone
                                                             : Progress::style_of_stderr());
  const auto begun = std::chrono::steady_clock::now();
  const auto act = arguments.check ? k3::tools::check : k3::tools::pack;
  const PackFacts facts = act(files, checkpoint, place.trunk, config, options, progress);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  progress.finish();
  if (arguments.json) {
    print_json(place, arguments, facts, seconds);
  } else if (!arguments.quiet) {
    print_text(place, arguments, facts, seconds);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Copies what every token needs, the tensors of all layers outside the routed experts, from "
      "the\n"
      "shards of a model into one file: TRUNK_DIR/trunk.bin, described by trunk.json. The model's\n"
      "files are only read.\n"
      "\n"
      "Each layer's XXH128 is taken of the bytes that came from the shards and written into\n"
      "trunk.json. --read-back and --check read trunk.bin again: the checksum then proves that "
      "the\n"
      "device returns what it was given. --check also compares every byte with the shards.\n"
      "Interrupted in any way, the same command goes on: finished layers of the partial file are\n"
      "kept when their checksums hold. trunk.json appears last, so a trunk with it is whole.\n"
      "\n"
      "Exit status: 0 done; 1 a tensor did not bind, a read or write failed, bytes differ; 2 "
      "usage, a\n"
      "config or trunk that cannot be accepted, a disk too full; 130 interrupted.",
      "k3-pack");
  Arguments arguments;
  declare(app, arguments);
  return k3::tools::tool_main(app, argc, argv, [&] {
    std::signal(SIGINT, request_stop);
    std::signal(SIGTERM, request_stop);
    std::signal(SIGXFSZ, SIG_IGN);  // a file over the limit is an error like a full disk
    run(arguments);
  });
}

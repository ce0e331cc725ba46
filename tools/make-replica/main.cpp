// k3-make-replica: writes a header-only replica of the released checkpoint.

#include <iostream>
#include <string>

#include <CLI/CLI.hpp>

#include "io/config_checks.h"
#include "io/config_reader.h"
#include "replica.h"
#include "tool_main.h"

namespace {

struct Arguments {
  std::string directory;
  std::string config;       // empty: the released dimensions
  std::size_t layers = 0;   // 0: all
  std::size_t experts = 0;  // 0: all
  bool no_vision = false;
  bool weight_map = false;
};

void declare(CLI::App& app, Arguments& arguments) {
  app.add_option("directory", arguments.directory, "Where to write: absent or empty")->required();
  app.add_option("--config", arguments.config,
                 "config.json that gives the dimensions [those of the release]");
  app.add_option("--layers", arguments.layers, "Only the first N layers")
      ->check(CLI::PositiveNumber);
  app.add_option("--experts", arguments.experts, "Only N experts a layer")
      ->check(CLI::PositiveNumber);
  app.add_flag("--no-vision", arguments.no_vision, "Leave the two vision shards out");
  app.add_flag("--weight-map", arguments.weight_map,
               "Write model.safetensors.index.json too (48 MB for the released dimensions)");
}

void run(const Arguments& arguments) {
  k3::ModelConfig config = arguments.config.empty() ? k3::tools::released_config()
                                                    : k3::io::read_config(arguments.config);
  config =
      k3::tools::shrink(config, arguments.layers == 0 ? config.num_hidden_layers : arguments.layers,
                        arguments.experts == 0 ? config.num_experts : arguments.experts);
  k3::io::check_config(config, "the replica");
  const k3::tools::ReplicaFacts facts = k3::tools::write_replica(
      config, arguments.directory,
      {.vision = !arguments.no_vision, .weight_map = arguments.weight_map});
  std::cout << facts.tensors << " tensors in " << facts.shards << " shards, " << facts.shard_bytes
            << " bytes in all, of which headers " << facts.header_bytes << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Writes a replica of the released checkpoint that has every shard's header and size\n"
      "but no weights: the data are holes of sparse files.",
      "k3-make-replica");
  Arguments arguments;
  declare(app, arguments);
  return k3::tools::tool_main(app, argc, argv, [&] { run(arguments); });
}

#include "replica.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <initializer_list>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "k3/errors.h"

#include "replica_config.h"
#include "shard_layout.h"

namespace k3::tools {
namespace {

Shard projector_shard() {
  constexpr std::string_view kPrefix = "mm_projector.";
  Shard shard;
  const auto add = [&](std::string_view name, std::initializer_list<std::uint64_t> shape) {
    shard.push_back({.name = std::string(kPrefix).append(name), .shape = shape});
  };
  add("post_norm.weight", {7168});
  add("proj.0.weight", {4096, 4096});
  add("proj.2.weight", {7168, 4096});
  return shard;
}

Shard tower_shard() {
  constexpr int kBlocks = 27;
  Shard shard;
  const auto add = [&](const std::string& name, std::initializer_list<std::uint64_t> shape) {
    shard.push_back({.name = "vision_tower." + name, .shape = shape});
  };
  for (int block = 0; block < kBlocks; ++block) {
    const std::string prefix = "encoder.blocks." + std::to_string(block) + ".";
    add(prefix + "norm0.weight", {1024});
    add(prefix + "norm1.weight", {1024});
    add(prefix + "wqkv.weight", {4608, 1024});
    add(prefix + "wo.weight", {1024, 1536});
    add(prefix + "mlp.fc0.weight", {4096, 1024});
    add(prefix + "mlp.fc1.weight", {1024, 4096});
  }
  add("patch_embed.proj.weight", {1024, 3, 14, 14});
  add("patch_embed.pos_emb.weight", {64, 64, 1024});
  add("encoder.final_layernorm.weight", {1024});
  return shard;
}

std::ofstream create(const std::filesystem::path& path) {
  std::ofstream file(path, std::ios::binary);
  if (!file) {
    throw std::system_error(errno, std::generic_category(), path.string());
  }
  return file;
}

void close(std::ofstream& file, const std::filesystem::path& path) {
  file.close();
  if (!file) {
    throw std::system_error(EIO, std::generic_category(), path.string());
  }
}

class Writer {
 public:
  Writer(std::filesystem::path directory, std::size_t shards)
      : directory_(std::move(directory)), shards_(shards) {}

  void write(Shard shard) {
    const std::string name = shard_name(facts_.shards + 1, shards_);
    const std::filesystem::path path = directory_ / name;
    const std::string header = lay_out(shard);
    std::ofstream file = create(path);
    file << header;
    close(file, path);
    const std::uint64_t file_bytes = header.size() + data_bytes(shard);
    std::filesystem::resize_file(path, file_bytes);  // the data is a hole
    facts_.shards += 1;
    facts_.tensors += shard.size();
    facts_.shard_bytes += file_bytes;
    facts_.header_bytes += header.size();
    for (const ShardTensor& tensor : shard) {
      weight_map_ += weight_map_.empty() ? "" : ",\n";
      weight_map_.append("    \"").append(tensor.name).append("\": \"").append(name).append("\"");
    }
  }

  void write_weight_map() const {
    const std::filesystem::path path = directory_ / "model.safetensors.index.json";
    std::ofstream file = create(path);
    file << "{\n  \"metadata\": {\"total_size\": " << facts_.shard_bytes - facts_.header_bytes
         << "},\n  \"weight_map\": {\n"
         << weight_map_ << "\n  }\n}\n";
    close(file, path);
  }

  void write_config(const ModelConfig& config) const {
    const std::filesystem::path path = directory_ / "config.json";
    std::ofstream file = create(path);
    file << config_text(config);
    close(file, path);
  }

  [[nodiscard]] const ReplicaFacts& facts() const { return facts_; }

 private:
  std::filesystem::path directory_;
  std::size_t shards_;
  std::string weight_map_;
  ReplicaFacts facts_;
};

}  // namespace

ModelConfig shrink(ModelConfig config, std::size_t layers, std::size_t experts) {
  if (layers < 1 || layers > config.num_hidden_layers || experts < 1 ||
      experts > config.num_experts) {
    throw Error(ErrorKind::kUsage, "layers and experts are 1 to those of the model");
  }
  config.num_hidden_layers = layers;
  config.is_mla.resize(layers);
  config.first_k_dense_replace = std::min(config.first_k_dense_replace, layers);
  config.num_experts = experts;
  config.num_experts_per_token = std::min(config.num_experts_per_token, experts);
  return config;
}

ReplicaFacts write_replica(const ModelConfig& config,
                           const std::filesystem::path& directory,
                           const ReplicaOptions& options) {
  std::filesystem::create_directories(directory);
  if (!std::filesystem::is_empty(directory)) {  // it might be the checkpoint itself
    throw Error(ErrorKind::kUsage, ErrorDetail{.what = "not a place for a replica",
                                               .where = directory.string(),
                                               .expected = "an absent or empty directory",
                                               .found = "files in it"});
  }
  const std::size_t vision_shards = options.vision ? 2 : 0;
  Writer writer(directory, config.num_hidden_layers + 1 + vision_shards);
  for (std::size_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    writer.write(layer_shard(config, layer));
  }
  writer.write(model_shard(config));
  if (options.vision) {
    writer.write(projector_shard());
    writer.write(tower_shard());
  }
  writer.write_config(config);
  if (options.weight_map) {
    writer.write_weight_map();
  }
  return writer.facts();
}

}  // namespace k3::tools

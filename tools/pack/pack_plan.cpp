#include "pack_plan.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>
#include <span>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

#include "k3/errors.h"

#include "base/checksum.h"

namespace k3::tools {
namespace {

using io::CheckpointIndex;
using io::TensorEntry;

constexpr std::string_view kLayerPrefix = "language_model.model.layers.";
constexpr std::string_view kExperts = ".experts.";

// The layer of a trunk tensor; `layers` for every other name.
std::size_t trunk_layer(std::string_view name, std::size_t layers) {
  if (!name.starts_with(kLayerPrefix) || name.find(kExperts) != std::string_view::npos) {
    return layers;
  }
  const std::string_view rest = name.substr(kLayerPrefix.size());
  std::size_t layer = 0;
  const char* const end = rest.data() + rest.size();
  const auto [stop, error] = std::from_chars(rest.data(), end, layer);
  const bool whole = error == std::errc() && stop != end && *stop == '.';
  return whole ? std::min(layer, layers) : layers;
}

// [layer]: ids of its trunk tensors, in the order of the shards and of their bytes.
std::vector<std::vector<std::uint32_t>> trunk_ids(const CheckpointIndex& index,
                                                  std::size_t layers) {
  std::vector<std::vector<std::uint32_t>> ids(layers);
  for (std::uint32_t id = 0; id < index.tensor_count(); ++id) {
    const std::size_t layer = trunk_layer(index.name(id), layers);
    if (layer < layers) {
      ids[layer].push_back(id);
    }
  }
  for (std::vector<std::uint32_t>& of_layer : ids) {
    std::sort(of_layer.begin(), of_layer.end(), [&index](std::uint32_t left, std::uint32_t right) {
      const TensorEntry a = index.entry(left);
      const TensorEntry b = index.entry(right);
      return std::tie(a.shard, a.offset, a.nbytes) < std::tie(b.shard, b.offset, b.nbytes);
    });
  }
  return ids;
}

std::uint64_t padded(std::uint64_t bytes) {
  return (bytes + io::kTrunkAlignment - 1) / io::kTrunkAlignment * io::kTrunkAlignment;
}

}  // namespace

std::vector<Piece> pieces_of(const CheckpointIndex& index, const io::TrunkRun& run) {
  std::vector<Piece> pieces;
  for (const auto& [name, tensor] : run.tensors) {
    const std::optional<TensorEntry> entry = index.find(name);
    if (entry.has_value() && entry->nbytes == tensor.nbytes && tensor.nbytes > 0) {
      pieces.push_back({entry->shard, entry->offset, tensor.offset, tensor.nbytes});
    }
  }
  std::ranges::sort(pieces, {}, &Piece::offset);
  std::vector<Piece> joined;
  for (const Piece& piece : pieces) {
    Piece* const last = joined.empty() ? nullptr : &joined.back();
    if (last != nullptr && last->shard == piece.shard &&
        last->source + last->bytes == piece.source && last->offset + last->bytes == piece.offset) {
      last->bytes += piece.bytes;
    } else {
      joined.push_back(piece);
    }
  }
  return joined;
}

PackPlan plan_trunk(const CheckpointIndex& index, std::size_t layers) {
  PackPlan plan;
  const std::vector<std::vector<std::uint32_t>> ids = trunk_ids(index, layers);
  for (std::size_t layer = 0; layer < layers; ++layer) {
    io::TrunkRun run{
        .layer = layer, .offset = plan.bytes, .nbytes = 0, .xxh128 = "", .tensors = {}};
    std::uint64_t end = 0;
    for (const std::uint32_t id : ids[layer]) {
      const TensorEntry entry = index.entry(id);
      run.tensors.emplace(index.name(id),
                          io::TrunkTensor{.offset = end,
                                          .nbytes = entry.nbytes,
                                          .dtype = std::string(entry.dtype_text),
                                          .shape = {entry.shape.begin(), entry.shape.end()}});
      end += entry.nbytes;
    }
    run.nbytes = padded(end);
    plan.bytes += run.nbytes;
    plan.tensors += run.tensors.size();
    std::vector<Piece> pieces = pieces_of(index, run);
    plan.runs.push_back({std::move(run), std::move(pieces)});
  }
  plan.fingerprint = fingerprint_of(index, plan.runs);
  return plan;
}

std::string fingerprint_of(const CheckpointIndex& index, const std::vector<PlannedRun>& runs) {
  nlohmann::json facts = nlohmann::json::array();
  std::set<std::uint32_t> shards;
  for (const PlannedRun& planned : runs) {
    const io::TrunkRun& run = planned.run;
    facts.push_back({run.layer, run.offset, run.nbytes});
    for (const auto& [name, tensor] : run.tensors) {
      facts.push_back({name, tensor.offset, tensor.nbytes, tensor.dtype, tensor.shape});
    }
    for (const Piece& piece : planned.pieces) {
      facts.push_back({piece.shard, piece.source, piece.offset, piece.bytes});
      shards.insert(piece.shard);
    }
  }
  for (const std::uint32_t shard : shards) {
    const std::filesystem::path& path = index.shard_path(shard);
    std::error_code error;
    const std::uint64_t bytes = std::filesystem::file_size(path, error);
    const auto changed = std::filesystem::last_write_time(path, error);
    if (error) {
      throw Error(ErrorKind::kIo, path.string() + ": " + error.message());
    }
    facts.push_back({shard, bytes, changed.time_since_epoch().count()});
  }
  const std::string text = facts.dump();
  return checksum_text(checksum_of(std::as_bytes(std::span(text))));
}

std::string manifest_text(const CheckpointIndex& index, const PackPlan& plan) {
  nlohmann::ordered_json layers = nlohmann::ordered_json::array();
  for (const PlannedRun& planned : plan.runs) {
    const io::TrunkRun& run = planned.run;
    nlohmann::ordered_json tensors = nlohmann::ordered_json::object();
    for (const auto& [name, tensor] : run.tensors) {
      tensors[name] = {{"off", tensor.offset},
                       {"nbytes", tensor.nbytes},
                       {"dtype", tensor.dtype},
                       {"shape", tensor.shape}};
    }
    const Piece first = planned.pieces.empty() ? Piece{} : planned.pieces.front();
    layers.push_back({{"layer", run.layer},
                      {"shard", index.shard_path(first.shard).filename().string()},
                      {"run_start", first.source},
                      {"nbytes", run.nbytes},
                      {"file_off", run.offset},
                      {"xxh128", run.xxh128},
                      {"tensors", std::move(tensors)}});
  }
  const nlohmann::ordered_json manifest = {{"n_layers", plan.runs.size()},
                                           {"align", io::kTrunkAlignment},
                                           {"source_xxh128", plan.fingerprint},
                                           {"layers", std::move(layers)}};
  // Names of files may be any bytes; JSON is UTF-8.
  return manifest.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace k3::tools

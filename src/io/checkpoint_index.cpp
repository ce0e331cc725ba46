#include "io/checkpoint_index.h"

#include <algorithm>
#include <utility>

#include "base/printable.h"
#include "io/shard_names.h"
#include "io/weight_map.h"

namespace k3::io {
namespace {

constexpr std::string_view kExtension = ".safetensors";

void append_bytes(std::string& key, std::uint64_t value) {
  key.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

}  // namespace

CheckpointIndex::CheckpointIndex(FileSystem& file_system, std::filesystem::path directory)
    : file_system_(&file_system), directory_(std::move(directory)) {
  find_shards();
  SafetensorsHeader header;
  for (std::uint32_t shard = 0; shard < shards_.size(); ++shard) {
    std::span<const HeaderTensor> tensors;
    try {
      const auto file = open_file(file_system, shards_[shard].path, ErrorKind::kCheckpoint);
      tensors = header.read(*file);
    } catch (const Error& fault) {
      shards_[shard].fault = fault.what();
      continue;
    }
    add_shard(shard, tensors);
  }
}

void CheckpointIndex::find_shards() {
  ListResult listed = file_system_->list(directory_);
  if (listed.error != 0) {
    throw Error(ErrorKind::kCheckpoint, ErrorDetail{.what = "cannot read the model directory",
                                                    .where = directory_.string(),
                                                    .expected = "a directory of shards",
                                                    .found = errno_text(listed.error)});
  }
  std::sort(listed.names.begin(), listed.names.end());
  for (const std::string& name : listed.names) {
    if (name.ends_with(kExtension) && !name.starts_with('.')) {
      shards_.push_back({.path = directory_ / name, .fault = ""});
    }
  }
  if (shards_.empty()) {
    throw Error(ErrorKind::kCheckpoint, ErrorDetail{.what = "no shard in the model directory",
                                                    .where = directory_.string(),
                                                    .expected = "*.safetensors files",
                                                    .found = "none"});
  }
}

void CheckpointIndex::add_shard(std::uint32_t shard, std::span<const HeaderTensor> tensors) {
  for (const HeaderTensor& tensor : tensors) {
    const NameTable::Inserted inserted = names_.insert(tensor.name);
    if (!inserted.fresh) {
      const Shard& other = shards_[places_[inserted.id].shard];
      throw Error(ErrorKind::kCheckpoint,
                  ErrorDetail{.what = "tensor name in two shards",
                              .where = shards_[shard].path.string() + ": " + printable(tensor.name),
                              .expected = "it in one shard",
                              .found = "it in " + other.path.string() + " too"});
    }
    places_.push_back({.offset = tensor.offset, .shard = shard, .layout = intern_layout(tensor)});
  }
}

std::uint32_t CheckpointIndex::intern_layout(const HeaderTensor& tensor) {
  layout_key_.assign(tensor.dtype_text);
  append_bytes(layout_key_, tensor.nbytes);
  for (const std::uint64_t extent : tensor.shape) {
    append_bytes(layout_key_, extent);
  }
  append_bytes(layout_key_, tensor.shape.size());
  const auto found = layout_ids_.find(layout_key_);
  if (found != layout_ids_.end()) {
    return found->second;
  }
  const auto id = static_cast<std::uint32_t>(layouts_.size());
  layouts_.push_back({.dtype = tensor.dtype,
                      .dtype_text = std::string(tensor.dtype_text),
                      .shape = {tensor.shape.begin(), tensor.shape.end()},
                      .nbytes = tensor.nbytes});
  layout_ids_.emplace(layout_key_, id);
  return id;
}

TensorEntry CheckpointIndex::entry(std::uint32_t id) const {
  const Place& place = places_[id];
  const Layout& layout = layouts_[place.layout];
  return {.dtype = layout.dtype,
          .dtype_text = layout.dtype_text,
          .shape = layout.shape,
          .offset = place.offset,
          .nbytes = layout.nbytes,
          .shard = place.shard};
}

std::optional<TensorEntry> CheckpointIndex::find(std::string_view name) const {
  const std::optional<std::uint32_t> id = find_id(name);
  return id.has_value() ? std::optional(entry(*id)) : std::nullopt;
}

std::size_t CheckpointIndex::damaged_shard_count() const {
  return static_cast<std::size_t>(std::count_if(
      shards_.begin(), shards_.end(), [](const Shard& shard) { return !shard.fault.empty(); }));
}

std::string CheckpointIndex::explain_by_weight_map(const std::string& shard_name) const {
  for (const Shard& shard : shards_) {
    if (shard.path.filename() == shard_name) {
      return shard.fault.empty() ? shard.path.string() + ", which does not hold it"
                                 : "a damaged shard: " + shard.fault;
    }
  }
  return "no file " + (directory_ / printable(shard_name)).string();
}

std::string CheckpointIndex::explain_by_elimination() const {
  std::string found;
  const std::size_t damaged = damaged_shard_count();
  if (damaged > 0) {
    const auto first = std::find_if(shards_.begin(), shards_.end(),
                                    [](const Shard& shard) { return !shard.fault.empty(); });
    found =
        "it in no whole shard; " + std::to_string(damaged) + " damaged, the first: " + first->fault;
  }
  std::vector<std::string> names;
  for (const Shard& shard : shards_) {
    names.push_back(shard.path.filename().string());
  }
  const AbsentShards absent = absent_shards(names);
  if (absent.count > 0) {
    found += found.empty() ? "" : "; ";
    found += std::to_string(absent.count) +
             " absent, the first: " + (directory_ / absent.first).string();
  }
  return found.empty() ? "it in none of " + std::to_string(shards_.size()) + " shards in " +
                             directory_.string()
                       : found;
}

ErrorDetail CheckpointIndex::explain_missing(std::string_view name) const {
  ErrorDetail detail;
  detail.what = "tensor is missing";
  detail.where = printable(name);
  const auto shard = shard_of_tensor(*file_system_, directory_, name);
  if (shard.has_value()) {
    detail.expected = "it in " + printable(*shard) + " (model.safetensors.index.json)";
    detail.found = explain_by_weight_map(*shard);
  } else {
    detail.expected = "it in a shard";
    detail.found = explain_by_elimination();
  }
  return detail;
}

std::size_t CheckpointIndex::memory_bytes() const {
  // A node of the hash map: the pair, its hash and the link.
  constexpr std::size_t kNodeBytes = sizeof(std::pair<std::string, std::uint32_t>) + 16;
  std::size_t bytes = names_.memory_bytes() + places_.capacity() * sizeof(Place) +
                      layouts_.capacity() * sizeof(Layout) +
                      layout_ids_.bucket_count() * sizeof(void*) +
                      shards_.capacity() * sizeof(Shard);
  for (const Shard& shard : shards_) {
    bytes += shard.path.native().capacity() + shard.fault.capacity();
  }
  for (const auto& [key, id] : layout_ids_) {
    const Layout& layout = layouts_[id];
    bytes += kNodeBytes + key.capacity() + layout.dtype_text.capacity() +
             layout.shape.capacity() * sizeof(layout.shape[0]);
  }
  return bytes;
}

}  // namespace k3::io

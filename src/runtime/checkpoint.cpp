#include "runtime/checkpoint.h"

#include <algorithm>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "k3/errors.h"

#include "base/printable.h"
#include "io/safetensors_types.h"
#include "runtime/widen.h"

namespace k3::runtime {
namespace {

using io::shape_text;
using model::TensorKind;
using model::TensorRole;
using model::TensorSpec;

constexpr std::uint32_t kUnbound = std::numeric_limits<std::uint32_t>::max();
constexpr std::size_t kRoles = static_cast<std::size_t>(TensorRole::kExpertW3Scale) + 1;
constexpr std::size_t kExpertTensors = std::tuple_size_v<ExpertExtents>;

bool type_allowed(TensorKind kind, DType type) {
  switch (kind) {
    case TensorKind::kVector:
      return type == DType::kBf16 || type == DType::kF32 || type == DType::kF16;
    case TensorKind::kMatrix:
      return type == DType::kBf16 || type == DType::kF32;
    case TensorKind::kPacked:
      return type == DType::kU8;
    case TensorKind::kScale:
      return type == DType::kU8 || type == DType::kF8E8M0;
  }
  return false;
}

std::string_view allowed_types(TensorKind kind) {
  switch (kind) {
    case TensorKind::kVector:
      return "BF16, F32 or F16 for a vector";
    case TensorKind::kMatrix:
      return "BF16 or F32 for a matrix";
    case TensorKind::kPacked:
      return "U8 for packed MXFP4 codes";
    case TensorKind::kScale:
      return "U8 or F8_E8M0 for MXFP4 scales";
  }
  return "";
}

std::span<const std::uint64_t> shape_of(const TensorSpec& spec) {
  return std::span(spec.shape).first(spec.rank);
}

// Axis by axis: a transposed matrix has as many elements.
bool shape_fits(const TensorSpec& spec, std::span<const std::uint64_t> shape) {
  if (spec.longer_ok) {
    return shape.size() == 1 && shape[0] >= spec.shape[0];
  }
  return std::ranges::equal(shape, shape_of(spec));
}

std::size_t element_count(const TensorSpec& spec) {
  std::size_t count = 1;
  for (const std::uint64_t extent : shape_of(spec)) {
    count *= static_cast<std::size_t>(extent);
  }
  return count;
}

}  // namespace

// Fills a checkpoint from the tensor plan.
class Checkpoint::Binder {
 public:
  Binder(Checkpoint& checkpoint, io::FileSystem& file_system)
      : target_(checkpoint), file_system_(file_system) {}

  void bind(const ModelConfig& config) {
    model::for_each_tensor(config, [this](const TensorSpec& spec) { visit(spec); });
    if (missing_count_ > 0) {
      ErrorDetail detail = target_.index_.explain_missing(first_missing_);
      if (missing_count_ > 1) {
        detail.what += " (the first of " + std::to_string(missing_count_) + ")";
      }
      throw Error(ErrorKind::kCheckpoint, detail);
    }
  }

 private:
  void visit(const TensorSpec& spec) {
    if (!spec.used) {
      return;
    }
    const std::optional<std::uint32_t> id = target_.index_.find_id(spec.name);
    if (!id.has_value()) {
      if (missing_count_++ == 0) {
        first_missing_ = spec.name;
      }
      return;
    }
    const TensorExtent extent = target_.index_.entry(*id);
    check(spec, extent);
    record(spec, *id, extent);
  }

  void check(const TensorSpec& spec, const TensorExtent& extent) const {
    const auto refuse = [&](std::string_view what, std::string expected, std::string found) {
      const std::string file = target_.index_.shard_path(extent.shard).string();
      throw Error(ErrorKind::kCheckpoint, ErrorDetail{.what = std::string(what),
                                                      .where = file + ": " + spec.name,
                                                      .expected = std::move(expected),
                                                      .found = std::move(found)});
    };
    if (!shape_fits(spec, extent.shape)) {
      const std::string expected = shape_text(shape_of(spec));
      refuse("wrong shape", spec.longer_ok ? expected + " or longer" : expected,
             printable(shape_text(extent.shape)));
    }
    if (!type_allowed(spec.kind, extent.dtype)) {
      refuse("wrong type", std::string(allowed_types(spec.kind)), printable(extent.dtype_text));
    }
  }

  void record(const TensorSpec& spec, std::uint32_t id, const TensorExtent& extent) {
    ++target_.bound_count_;
    if (spec.expert == model::kNoIndex) {
      target_.trunk_[target_.trunk_slot(spec.layer, spec.role)] = id;
      target_.trunk_bytes_ += extent.nbytes;
    } else {
      target_.expert_ids_.push_back(id);  // the plan's order is the layout
      target_.expert_bytes_ += extent.nbytes;
    }
    std::unique_ptr<io::File>& file = target_.files_[extent.shard];
    if (file == nullptr) {
      file = io::open_file(file_system_, target_.index_.shard_path(extent.shard),
                           ErrorKind::kCheckpoint);
    }
  }

  Checkpoint& target_;
  io::FileSystem& file_system_;
  std::string first_missing_;
  std::size_t missing_count_ = 0;
};

Checkpoint::Checkpoint(io::FileSystem& file_system,
                       const std::filesystem::path& directory,
                       const ModelConfig& config)
    : index_(file_system, directory),
      layers_(config.num_hidden_layers),
      experts_per_layer_(config.num_experts),
      dense_layers_(std::min(config.first_k_dense_replace, config.num_hidden_layers)),
      trunk_((config.num_hidden_layers + 1) * kRoles, kUnbound),
      files_(index_.shard_count()) {
  Binder(*this, file_system).bind(config);
  expert_ids_.shrink_to_fit();
}

std::size_t Checkpoint::trunk_slot(std::size_t layer, TensorRole role) const {
  const std::size_t row = layer == model::kNoIndex ? layers_ : layer;
  return row * kRoles + static_cast<std::size_t>(role);
}

std::optional<TensorExtent> Checkpoint::find(std::size_t layer, TensorRole role) const {
  if (layer >= layers_ && layer != model::kNoIndex) {
    return std::nullopt;
  }
  const std::uint32_t id = trunk_[trunk_slot(layer, role)];
  return id == kUnbound ? std::nullopt : std::optional(index_.entry(id));
}

TensorExtent Checkpoint::tensor(std::size_t layer, TensorRole role) const {
  const std::optional<TensorExtent> found = find(layer, role);
  if (!found.has_value()) {
    throw std::logic_error("Checkpoint::tensor: the layer has no such tensor");
  }
  return *found;
}

ExpertExtents Checkpoint::expert(std::size_t layer, std::size_t expert) const {
  if (layer < dense_layers_ || layer >= layers_ || expert >= experts_per_layer_) {
    throw std::logic_error("Checkpoint::expert: no such expert");
  }
  const std::size_t first =
      ((layer - dense_layers_) * experts_per_layer_ + expert) * kExpertTensors;
  ExpertExtents extents;
  for (std::size_t i = 0; i < kExpertTensors; ++i) {
    extents[i] = index_.entry(expert_ids_[first + i]);
  }
  return extents;
}

io::File& Checkpoint::file(std::uint32_t shard) const {
  if (shard >= files_.size() || files_[shard] == nullptr) {
    throw std::logic_error("Checkpoint::file: the shard holds no bound tensor");
  }
  return *files_[shard];
}

void Checkpoint::read_bytes(const TensorExtent& extent,
                            std::uint64_t begin,
                            std::span<std::byte> out,
                            ErrorKind kind) const {
  if (begin > extent.nbytes || out.size() > extent.nbytes - begin) {
    throw std::logic_error("Checkpoint::read_bytes: outside the tensor");
  }
  io::read_exact(file(extent.shard), extent.offset + begin, out, kind);
}

std::vector<float> Checkpoint::read_vector(const TensorSpec& spec) const {
  const TensorExtent extent = tensor(spec.layer, spec.role);
  std::vector<float> values(element_count(spec));
  std::vector<std::byte> bytes(values.size() * dtype_size(extent.dtype));
  read_bytes(extent, 0, bytes);
  widen(extent.dtype, bytes, values);
  return values;
}

std::size_t Checkpoint::memory_bytes() const {
  return index_.memory_bytes() + trunk_.capacity() * sizeof(trunk_[0]) +
         expert_ids_.capacity() * sizeof(expert_ids_[0]) + files_.capacity() * sizeof(files_[0]);
}

}  // namespace k3::runtime

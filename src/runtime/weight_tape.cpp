#include "runtime/weight_tape.h"

#include <cstring>
#include <stdexcept>

#include "base/float_bits.h"

namespace k3::runtime {
namespace {

using model::MatrixId;
using model::TensorSpec;

// The view of a whole matrix in its storage type, which binding has checked.
MatrixView view_of(const AlignedBuffer<std::byte>& bytes,
                   const TensorExtent& extent,
                   const TensorSpec& spec) {
  const auto rows = static_cast<std::size_t>(spec.shape[0]);
  const auto cols = static_cast<std::size_t>(spec.shape[1]);
  if (extent.dtype == DType::kBf16) {
    return Bf16Matrix{reinterpret_cast<const std::uint16_t*>(bytes.data()), rows, cols, cols};
  }
  return F32Matrix{reinterpret_cast<const float*>(bytes.data()), rows, cols, cols};
}

}  // namespace

void check_load_stop(const std::atomic<bool>* stop) {
  if (stop != nullptr && stop->load(std::memory_order_relaxed)) {
    throw Error(ErrorKind::kInterrupted, "interrupted while loading");
  }
}

PinnedTape::PinnedTape(const Checkpoint& checkpoint,
                       const ModelConfig& config,
                       const std::atomic<bool>* stop)
    : checkpoint_(checkpoint),
      embedding_(checkpoint.tensor(model::kNoIndex, model::TensorRole::kEmbedding)) {
  model::for_each_tape_matrix(config, [&](const TensorSpec& spec) {
    check_load_stop(stop);
    const TensorExtent extent = checkpoint.tensor(spec.layer, spec.role);
    AlignedBuffer<std::byte> bytes(static_cast<std::size_t>(extent.nbytes));
    checkpoint.read_bytes(extent, 0, bytes.span());
    const MatrixView view = view_of(bytes, extent, spec);
    bytes_ += extent.nbytes;
    items_.push_back({MatrixId{spec.layer, spec.role}, std::move(bytes), view});
  });
}

model::Tile PinnedTape::next(MatrixId id) {
  if (cursor_ >= items_.size() || items_[cursor_].id != id) {
    throw std::logic_error("the forward pass left the order of the tape");
  }
  const std::size_t item = cursor_++;
  return {*this, item, items_[item].view};
}

void PinnedTape::release(std::size_t /*item*/) noexcept {}

void PinnedTape::read_embedding(std::size_t token, std::span<float> out) {
  if (embedding_.dtype == DType::kF32) {
    checkpoint_.read_bytes(embedding_, token * out.size_bytes(), std::as_writable_bytes(out));
    return;
  }
  // The bf16 row is read into the upper half of `out` and widened from the front.
  const std::span<std::byte> upper = std::as_writable_bytes(out).last(out.size_bytes() / 2);
  checkpoint_.read_bytes(embedding_, token * upper.size(), upper);
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, upper.data() + i * sizeof(bits), sizeof(bits));
    out[i] = bf16_to_float(bits);
  }
}

}  // namespace k3::runtime

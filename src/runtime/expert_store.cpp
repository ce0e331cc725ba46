#include "runtime/expert_store.h"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "runtime/weight_tape.h"

namespace k3::runtime {
namespace {

std::size_t round_up(std::size_t bytes) {
  return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}

// Packed codes and scales of one matrix, dense rows.
Mxfp4Matrix mxfp4_view(const std::byte* packed,
                       const std::byte* scales,
                       std::size_t rows,
                       std::size_t cols) {
  return {reinterpret_cast<const std::uint8_t*>(packed),
          reinterpret_cast<const std::uint8_t*>(scales),
          rows,
          cols,
          cols / 2,
          cols / kMxfp4Group};
}

}  // namespace

ResidentExperts::ResidentExperts(const Checkpoint& checkpoint,
                                 const ModelConfig& config,
                                 const std::atomic<bool>* stop)
    : config_(config), layers_(config.num_hidden_layers) {
  pending_.reserve(config.num_experts);
  for (std::size_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    if (config.is_dense(layer)) {
      continue;
    }
    for (std::size_t expert = 0; expert < config.num_experts; ++expert) {
      check_load_stop(stop);
      layers_[layer].push_back(load(checkpoint, layer, expert));
    }
  }
}

ResidentExperts::Expert ResidentExperts::load(const Checkpoint& checkpoint,
                                              std::size_t layer,
                                              std::size_t expert) {
  const ExpertExtents extents = checkpoint.expert(layer, expert);
  std::array<std::size_t, extents.size() + 1> offsets = {};
  for (std::size_t i = 0; i < extents.size(); ++i) {
    offsets[i + 1] = offsets[i] + round_up(static_cast<std::size_t>(extents[i].nbytes));
    bytes_ += extents[i].nbytes;
  }
  Expert loaded;
  loaded.bytes = AlignedBuffer<std::byte>(offsets.back());
  for (std::size_t i = 0; i < extents.size(); ++i) {
    checkpoint.read_bytes(
        extents[i], 0,
        {loaded.bytes.data() + offsets[i], static_cast<std::size_t>(extents[i].nbytes)},
        ErrorKind::kExpertIo);
  }
  const auto view = [&](std::size_t first, std::size_t rows, std::size_t cols) {
    return mxfp4_view(loaded.bytes.data() + offsets[first],
                      loaded.bytes.data() + offsets[first + 1], rows, cols);
  };
  const std::size_t inner = config_.moe_intermediate_size;
  const std::size_t latent = config_.routed_expert_hidden_size;
  loaded.weights = {view(0, inner, latent), view(2, latent, inner), view(4, inner, latent)};
  return loaded;
}

void ResidentExperts::request(std::size_t layer, std::span<const std::uint32_t> experts) {
  layer_ = layer;
  pending_.assign(experts.rbegin(), experts.rend());
}

model::ExpertLease ResidentExperts::next() {
  if (pending_.empty()) {
    throw std::logic_error("more experts are taken than were announced");
  }
  const std::uint32_t expert = pending_.back();
  pending_.pop_back();
  return {*this, expert, layers_[layer_][expert].weights};
}

void ResidentExperts::release(std::uint32_t /*expert*/) noexcept {}

}  // namespace k3::runtime

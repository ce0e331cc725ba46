#include "model/sequence_state.h"

#include <algorithm>
#include <stdexcept>

#include "kernels/attention.h"

namespace k3::model {
namespace {

using kernels::kKeyBlock;

KdaState make_kda_state(const ModelConfig& config) {
  const std::size_t tail = (config.short_conv_kernel_size - 1) * config.kda_width();
  return KdaState{
      .state = AlignedBuffer<float>(config.kda_width() * config.kda_head_dim),
      .q_tail = AlignedBuffer<float>(tail),
      .k_tail = AlignedBuffer<float>(tail),
      .v_tail = AlignedBuffer<float>(tail),
  };
}

}  // namespace

void LatentCache::reserve(std::size_t positions) {
  while (blocks_.size() * kKeyBlock < positions) {
    blocks_.emplace_back(kKeyBlock * width_);
    pointers_.push_back(blocks_.back().data());
  }
}

float* LatentCache::at(std::size_t position) {
  return blocks_[position / kKeyBlock].data() + (position % kKeyBlock) * width_;
}

SequenceState::SequenceState(const ModelConfig& config, StateKind kind) : kind_(kind) {
  if (kind == StateKind::kOneLayer) {
    layers_.emplace_back(make_kda_state(config));
    layers_.emplace_back(LatentCache(config.latent_width()));
    return;
  }
  layers_.reserve(config.num_hidden_layers);
  for (std::size_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    if (config.is_mla[layer]) {
      layers_.emplace_back(LatentCache(config.latent_width()));
    } else {
      layers_.emplace_back(make_kda_state(config));
    }
  }
}

std::uint64_t SequenceState::fixed_bytes(const ModelConfig& config, StateKind kind) {
  const std::uint64_t tails = 3 * (config.short_conv_kernel_size - 1) * config.kda_width();
  const std::uint64_t layer = (tails + config.kda_width() * config.kda_head_dim) * sizeof(float);
  const auto layers = static_cast<std::uint64_t>(std::ranges::count(config.is_mla, false));
  return kind == StateKind::kOneLayer ? layer : layers * layer;
}

std::uint64_t SequenceState::latent_bytes(const ModelConfig& config,
                                          StateKind kind,
                                          std::size_t positions) {
  const std::uint64_t blocks = (positions + kKeyBlock - 1) / kKeyBlock;
  const std::uint64_t layer = blocks * kKeyBlock * config.latent_width() * sizeof(float);
  const auto layers = static_cast<std::uint64_t>(std::ranges::count(config.is_mla, true));
  return layer * (kind == StateKind::kOneLayer ? std::min<std::uint64_t>(layers, 1) : layers);
}

std::uint64_t SequenceState::layer_bytes(const ModelConfig& config,
                                         std::size_t layer,
                                         std::uint64_t positions) {
  if (config.is_mla[layer]) {
    return positions * config.latent_width() * sizeof(float);
  }
  const std::uint64_t rows = 3 * (config.short_conv_kernel_size - 1) + config.kda_head_dim;
  return rows * config.kda_width() * sizeof(float);
}

KdaState& SequenceState::kda(std::size_t layer) {
  if (kind_ == StateKind::kAllLayers) {
    return std::get<KdaState>(layers_[layer]);
  }
  auto& shared = std::get<KdaState>(layers_.front());
  if (shown_layer_ != layer + 1) {
    shown_layer_ = layer + 1;
    for (AlignedBuffer<float>* part :
         {&shared.state, &shared.q_tail, &shared.k_tail, &shared.v_tail}) {
      std::ranges::fill(part->span(), 0.0F);
    }
  }
  return shared;
}

LatentCache& SequenceState::latents(std::size_t layer) {
  return std::get<LatentCache>(kind_ == StateKind::kAllLayers ? layers_[layer] : layers_.back());
}

void SequenceState::begin_pass() {
  if (torn_) {
    throw std::logic_error("a sequence cannot go on after a forward pass that failed");
  }
  if (kind_ == StateKind::kOneLayer && position_ > 0) {
    throw std::logic_error("a sequence with one state for all layers runs once, as a whole");
  }
  torn_ = true;
}

void SequenceState::end_pass(std::size_t tokens) {
  position_ += tokens;
  torn_ = false;
}

void SequenceState::visit_layer(std::size_t layer,
                                std::size_t positions,
                                const PartVisitor& visit) {
  if (kind_ == StateKind::kOneLayer) {
    throw std::logic_error("a sequence with one state for all layers keeps none of them");
  }
  if (auto* const kda = std::get_if<KdaState>(&layers_[layer])) {
    for (AlignedBuffer<float>* part : {&kda->state, &kda->q_tail, &kda->k_tail, &kda->v_tail}) {
      visit(part->span());
    }
    return;
  }
  auto& latents = std::get<LatentCache>(layers_[layer]);
  latents.reserve(positions);
  for (std::size_t first = 0; first < positions; first += kKeyBlock) {
    const std::size_t count = std::min(kKeyBlock, positions - first);
    visit({latents.at(first), count * latents.width()});
  }
}

void SequenceState::resume(std::size_t positions) {
  if (torn_ || position_ > 0 || kind_ == StateKind::kOneLayer) {
    throw std::logic_error("only a new sequence with a state for each layer can be resumed");
  }
  position_ = positions;
}

}  // namespace k3::model

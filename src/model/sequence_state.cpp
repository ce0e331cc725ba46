#include "model/sequence_state.h"

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

SequenceState::SequenceState(const ModelConfig& config) {
  layers_.reserve(config.num_hidden_layers);
  for (std::size_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    if (config.is_mla[layer]) {
      layers_.emplace_back(LatentCache(config.latent_width()));
    } else {
      layers_.emplace_back(make_kda_state(config));
    }
  }
}

void SequenceState::begin_pass() {
  if (torn_) {
    throw std::logic_error("a sequence cannot go on after a forward pass that failed");
  }
  torn_ = true;
}

void SequenceState::end_pass(std::size_t tokens) {
  position_ += tokens;
  torn_ = false;
}

}  // namespace k3::model

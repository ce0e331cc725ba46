// Routed experts in memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "k3/config.h"

#include "base/aligned_buffer.h"
#include "model/weights.h"
#include "runtime/checkpoint.h"

namespace k3::runtime {

// Every expert of every layer, read at construction.
class ResidentExperts final : public model::ExpertSource {
 public:
  // `checkpoint` is used during construction alone; `stop` may be null. Throws Error(kMemory,
  // kExpertIo, kInterrupted).
  ResidentExperts(const Checkpoint& checkpoint,
                  const ModelConfig& config,
                  const std::atomic<bool>* stop);

  void request(std::size_t layer, std::span<const std::uint32_t> experts) override;
  [[nodiscard]] model::ExpertLease next() override;

  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

 private:
  struct Expert {
    AlignedBuffer<std::byte> bytes;  // w1, w1 scale, w2, w2 scale, w3, w3 scale
    model::ExpertWeights weights;
  };

  Expert load(const Checkpoint& checkpoint, std::size_t layer, std::size_t expert);
  void release(std::uint32_t expert) noexcept override;

  const ModelConfig& config_;
  std::vector<std::vector<Expert>> layers_;  // [layer][expert]; empty for a dense layer
  std::size_t layer_ = 0;                    // of the current request
  std::vector<std::uint32_t> pending_;       // announced and not yet handed out, last first
  std::uint64_t bytes_ = 0;
};

}  // namespace k3::runtime

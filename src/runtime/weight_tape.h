// The trunk matrices as a tape: tiles in execution order, read from the checkpoint.
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

// Every tile is pinned: read once at construction and kept. A tile is a whole matrix.
class PinnedTape final : public model::WeightTape {
 public:
  // `checkpoint` must outlive the tape. `stop` (may be null) is checked before every matrix.
  // Throws Error(kMemory, kIo, kInterrupted).
  PinnedTape(const Checkpoint& checkpoint,
             const ModelConfig& config,
             const std::atomic<bool>* stop);

  void rewind() override { cursor_ = 0; }

  [[nodiscard]] model::Tile next(model::MatrixId id) override;
  void read_embedding(std::size_t token, std::span<float> out) override;

  // Bytes of the pinned tiles.
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

 private:
  struct Item {
    model::MatrixId id;
    AlignedBuffer<std::byte> bytes;
    MatrixView view;
  };

  void release(std::size_t item) noexcept override;

  const Checkpoint& checkpoint_;
  TensorExtent embedding_;
  std::vector<Item> items_;  // in execution order
  std::size_t cursor_ = 0;   // item that next() hands out
  std::uint64_t bytes_ = 0;
};

// Throws Error(kInterrupted) when `stop` is set; it may be null.
void check_load_stop(const std::atomic<bool>* stop);

}  // namespace k3::runtime

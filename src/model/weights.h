// What a forward pass asks of the outside: weights in execution order, experts by id, vectors once.
//
// The model knows no files. The runtime implements these interfaces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "k3/next_forward.h"

#include "base/matrix_view.h"
#include "model/tensor_plan.h"

namespace k3::model {

// One matrix of the tape. `layer` is kNoIndex for the head.
struct MatrixId {
  std::size_t layer = kNoIndex;
  TensorRole role = TensorRole::kHead;

  friend bool operator==(const MatrixId&, const MatrixId&) = default;
};

class WeightTape;

// What a pass will use.
struct PassPlan {
  bool head = true;  // its logits are wanted; else it ends before the head
  NextForward next = NextForward::kWithLogits;
};

// Consecutive rows of one matrix, valid until the tile is destroyed.
class Tile {
 public:
  Tile(WeightTape& tape, std::size_t item, MatrixView view)
      : tape_(&tape), item_(item), view_(view) {}

  Tile(Tile&& other) noexcept : tape_(other.tape_), item_(other.item_), view_(other.view_) {
    other.tape_ = nullptr;
  }

  Tile(const Tile&) = delete;
  Tile& operator=(const Tile&) = delete;
  Tile& operator=(Tile&&) = delete;
  ~Tile();

  [[nodiscard]] const MatrixView& view() const { return view_; }

 private:
  WeightTape* tape_;
  std::size_t item_;
  MatrixView view_;
};

// The matrices of one forward pass, in the order of for_each_tape_matrix(), each cut into tiles.
class WeightTape {
 public:
  WeightTape() = default;
  WeightTape(const WeightTape&) = delete;
  WeightTape& operator=(const WeightTape&) = delete;
  WeightTape(WeightTape&&) = delete;
  WeightTape& operator=(WeightTape&&) = delete;
  virtual ~WeightTape() = default;

  // Starts a pass at the first tile, whether or not the last one reached its end.
  virtual void begin_pass(const PassPlan& plan) = 0;

  // The next tile, which must be of matrix `id` (std::logic_error otherwise). Waits for its bytes.
  [[nodiscard]] virtual Tile next(MatrixId id) = 0;

  // Row `token` of the embedding, widened to float32: out[E].
  virtual void read_embedding(std::size_t token, std::span<float> out) = 0;

 private:
  friend class Tile;
  virtual void release(std::size_t item) noexcept = 0;
};

inline Tile::~Tile() {
  if (tape_ != nullptr) {
    tape_->release(item_);
  }
}

// The three matrices of one routed expert; MXFP4 in a checkpoint.
struct ExpertWeights {
  MatrixView w1;  // [I][L]
  MatrixView w2;  // [L][I]
  MatrixView w3;  // [I][L]
};

class ExpertSource;

// An expert that has arrived, pinned until the lease is destroyed.
class ExpertLease {
 public:
  ExpertLease(ExpertSource& source, std::uint32_t expert, const ExpertWeights& weights)
      : source_(&source), expert_(expert), weights_(weights) {}

  ExpertLease(ExpertLease&& other) noexcept
      : source_(other.source_), expert_(other.expert_), weights_(other.weights_) {
    other.source_ = nullptr;
  }

  ExpertLease(const ExpertLease&) = delete;
  ExpertLease& operator=(const ExpertLease&) = delete;
  ExpertLease& operator=(ExpertLease&&) = delete;
  ~ExpertLease();

  [[nodiscard]] std::uint32_t expert() const { return expert_; }

  [[nodiscard]] const ExpertWeights& weights() const { return weights_; }

 private:
  ExpertSource* source_;
  std::uint32_t expert_;
  ExpertWeights weights_;
};

// The routed experts of all layers.
class ExpertSource {
 public:
  ExpertSource() = default;
  ExpertSource(const ExpertSource&) = delete;
  ExpertSource& operator=(const ExpertSource&) = delete;
  ExpertSource(ExpertSource&&) = delete;
  ExpertSource& operator=(ExpertSource&&) = delete;
  virtual ~ExpertSource() = default;

  // Announces the distinct experts that a layer will use, those that its next request is likeliest
  // to name again first: the last token's choices in their order, then the tokens' before it. The
  // order is a hint for caches. The previous announcement has been drained by as many next() calls
  // as it named.
  virtual void request(std::size_t layer, std::span<const std::uint32_t> experts) = 0;

  // The next announced expert that has arrived, in any order. Waits; throws Error(kExpertIo).
  [[nodiscard]] virtual ExpertLease next() = 0;

 private:
  friend class ExpertLease;
  virtual void release(std::uint32_t expert) noexcept = 0;
};

inline ExpertLease::~ExpertLease() {
  if (source_ != nullptr) {
    source_->release(expert_);
  }
}

// Reads the small vectors at start.
class VectorReader {
 public:
  VectorReader() = default;
  VectorReader(const VectorReader&) = delete;
  VectorReader& operator=(const VectorReader&) = delete;
  VectorReader(VectorReader&&) = delete;
  VectorReader& operator=(VectorReader&&) = delete;
  virtual ~VectorReader() = default;

  // The values of a kVector tensor in storage order, widened to float32. With `longer_ok` only the
  // first shape[0] of them.
  virtual void read(const TensorSpec& spec, std::span<float> out) = 0;
};

}  // namespace k3::model

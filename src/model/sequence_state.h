// What a sequence keeps from token to token: KDA states, convolution tails, MLA latents.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <variant>
#include <vector>

#include "k3/config.h"

#include "base/aligned_buffer.h"

namespace k3::model {

// Of one KDA layer; its size does not depend on the position.
struct KdaState {
  AlignedBuffer<float> state;   // [H][D key rows][D value columns]
  AlignedBuffer<float> q_tail;  // [K-1][P] last inputs of the q convolution, oldest first
  AlignedBuffer<float> k_tail;  // [K-1][P]
  AlignedBuffer<float> v_tail;  // [K-1][P]
};

// Of one MLA layer: normalised latent and k_rope of every position, in blocks that never move.
class LatentCache {
 public:
  explicit LatentCache(std::size_t width) : width_(width) {}

  // Makes room for `positions` positions in all. Throws Error(kMemory).
  void reserve(std::size_t positions);

  // The floats of a position within the reserved ones: [latent + rope].
  [[nodiscard]] float* at(std::size_t position);

  // Floats of a position.
  [[nodiscard]] std::size_t width() const { return width_; }

  // [block] -> [kKeyBlock][latent + rope]
  [[nodiscard]] std::span<const float* const> blocks() const { return pointers_; }

 private:
  std::size_t width_;
  std::vector<AlignedBuffer<float>> blocks_;
  std::vector<const float*> pointers_;
};

// How much of a sequence is kept.
enum class StateKind : std::uint8_t {
  kAllLayers,  // every layer has its own: tokens may come in any number of passes
  kOneLayer,   // the layers take turns with one: every pass must hold the whole sequence
};

class SequenceState {
 public:
  // Throws Error(kMemory).
  explicit SequenceState(const ModelConfig& config, StateKind kind = StateKind::kAllLayers);

  // Bytes of the parts that do not depend on the position, and of the latents of so many positions.
  [[nodiscard]] static std::uint64_t fixed_bytes(const ModelConfig& config, StateKind kind);
  [[nodiscard]] static std::uint64_t latent_bytes(const ModelConfig& config,
                                                  StateKind kind,
                                                  std::size_t positions);

  // Bytes of what a layer keeps of so many positions, without what fills up a block.
  [[nodiscard]] static std::uint64_t layer_bytes(const ModelConfig& config,
                                                 std::size_t layer,
                                                 std::uint64_t positions);

  // Tokens that have passed through all layers.
  [[nodiscard]] std::size_t position() const { return position_; }

  // The first call for a layer comes before any parallel region: with kOneLayer it clears the state.
  [[nodiscard]] KdaState& kda(std::size_t layer);
  [[nodiscard]] LatentCache& latents(std::size_t layer);

  // A pass changes the layers one by one. Between begin_pass() and end_pass() the state is torn: a
  // pass that throws leaves it so, and begin_pass() then throws std::logic_error, as it does for a
  // second pass of kOneLayer.
  void begin_pass();
  void end_pass(std::size_t tokens);

  // A pass has thrown, or is under way.
  [[nodiscard]] bool torn() const { return torn_; }

  // Visits the layer_bytes() of a layer, which it makes room for, part by part: of KDA the state and
  // the tails of q, k and v, of MLA the latents of each block. std::logic_error for kOneLayer.
  // Throws Error(kMemory).
  using PartVisitor = std::function<void(std::span<float> part)>;
  void visit_layer(std::size_t layer, std::size_t positions, const PartVisitor& visit);

  // A new sequence, whose layers visit_layer() has filled, goes on behind so many positions.
  void resume(std::size_t positions);

 private:
  StateKind kind_;
  std::vector<std::variant<KdaState, LatentCache>> layers_;  // kOneLayer: the two kinds
  std::size_t shown_layer_ = 0;  // kOneLayer: whose KDA state it is, + 1
  std::size_t position_ = 0;
  bool torn_ = false;
};

}  // namespace k3::model

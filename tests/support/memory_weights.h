// Weights of a model held by a test: a tape and an expert source without files.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "model/weights.h"

namespace k3::test {

// Matrices by id, float32, in tiles of `tile_rows` rows (kv_b whole). Any order of use.
class MemoryTape final : public model::WeightTape {
 public:
  explicit MemoryTape(std::size_t tile_rows = 7) : tile_rows_(tile_rows) {}

  void add(model::MatrixId id, std::size_t rows, std::size_t cols, std::vector<float> values);

  void set_embedding(std::vector<float> values) { embedding_ = std::move(values); }

  void begin_pass(const model::PassPlan& /*plan*/) override { offsets_.clear(); }

  [[nodiscard]] model::Tile next(model::MatrixId id) override;
  void read_embedding(std::size_t token, std::span<float> out) override;

  [[nodiscard]] std::size_t tiles_out() const { return tiles_out_; }

 private:
  using Key = std::pair<std::size_t, model::TensorRole>;

  struct Matrix {
    std::size_t rows = 0;
    std::size_t cols = 0;
    std::vector<float> values;
  };

  void release(std::size_t item) noexcept override;

  std::size_t tile_rows_;
  std::map<Key, Matrix> matrices_;
  std::map<Key, std::size_t> offsets_;  // next row of a matrix in use
  std::vector<float> embedding_;
  std::size_t tiles_out_ = 0;
};

// Experts of one layer, float32; handed out in the order asked, or reversed.
class MemoryExperts final : public model::ExpertSource {
 public:
  struct Expert {
    std::vector<float> w1, w2, w3;
  };

  MemoryExperts(std::size_t latent, std::size_t inner) : latent_(latent), inner_(inner) {}

  void add(Expert expert) { experts_.push_back(std::move(expert)); }

  void set_reversed(bool reversed) { reversed_ = reversed; }

  // The experts of the last request, in its order.
  [[nodiscard]] const std::vector<std::uint32_t>& announced() const { return announced_; }

  void request(std::size_t layer, std::span<const std::uint32_t> experts) override;
  [[nodiscard]] model::ExpertLease next() override;

 private:
  void release(std::uint32_t expert) noexcept override;

  std::size_t latent_;
  std::size_t inner_;
  bool reversed_ = false;
  std::vector<Expert> experts_;
  std::vector<std::uint32_t> announced_;
  std::vector<std::uint32_t> pending_;
};

}  // namespace k3::test

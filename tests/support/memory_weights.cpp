#include "support/memory_weights.h"

#include <algorithm>

namespace k3::test {

void MemoryTape::add(model::MatrixId id,
                     std::size_t rows,
                     std::size_t cols,
                     std::vector<float> values) {
  matrices_[{id.layer, id.role}] = {rows, cols, std::move(values)};
}

model::Tile MemoryTape::next(model::MatrixId id) {
  const Key key{id.layer, id.role};
  const Matrix& matrix = matrices_.at(key);
  std::size_t& row = offsets_[key];
  if (row == matrix.rows) {
    row = 0;  // the next pass
  }
  const std::size_t wanted = id.role == model::TensorRole::kMlaKvB ? matrix.rows : tile_rows_;
  const std::size_t count = std::min(wanted, matrix.rows - row);
  const F32Matrix view{matrix.values.data() + row * matrix.cols, count, matrix.cols, matrix.cols};
  row += count;
  ++tiles_out_;
  return {*this, 0, view};
}

void MemoryTape::release(std::size_t /*item*/) noexcept {
  --tiles_out_;
}

void MemoryTape::read_embedding(std::size_t token, std::span<float> out) {
  std::copy_n(embedding_.begin() + static_cast<std::ptrdiff_t>(token * out.size()), out.size(),
              out.begin());
}

void MemoryExperts::request(std::size_t /*layer*/, std::span<const std::uint32_t> experts) {
  announced_.assign(experts.begin(), experts.end());
  pending_.assign(experts.rbegin(), experts.rend());
  if (reversed_) {
    std::ranges::reverse(pending_);
  }
}

model::ExpertLease MemoryExperts::next() {
  const std::uint32_t id = pending_.back();
  pending_.pop_back();
  const Expert& expert = experts_[id];
  return {*this,
          id,
          {F32Matrix{expert.w1.data(), inner_, latent_, latent_},
           F32Matrix{expert.w2.data(), latent_, inner_, inner_},
           F32Matrix{expert.w3.data(), inner_, latent_, latent_}}};
}

void MemoryExperts::release(std::uint32_t /*expert*/) noexcept {}

}  // namespace k3::test

// Random weights of realistic spread, fast and the same wherever a tensor is begun.
//
// Every element is a look-up: 16 random bits choose one of 65,536 equally likely values of the
// tensor's distribution. The bits are a function of seed, tensor name and position alone, so that
// threads and chunks change nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "shard_layout.h"

namespace k3::tools {

// The content of one tensor. Callable from several threads.
class TensorFiller {
 public:
  // The bytes of the tensor from `begin` on; `begin` is a multiple of kStep.
  void fill(std::uint64_t begin, std::span<std::byte> out) const;

  static constexpr std::size_t kStep = 16;  // bytes

  // [16 random bits]: bytes, bf16 bits, or float32.
  using Table =
      std::variant<std::vector<std::uint8_t>, std::vector<std::uint16_t>, std::vector<float>>;

 private:
  friend class WeightSource;

  std::uint64_t key_ = 0;
  std::shared_ptr<const Table> table_;
};

// Hands out the fillers of a checkpoint. Matrices have a standard deviation of one by the root of
// their columns, so that products of normalised inputs stay near 1; norms lie around 1.
class WeightSource {
 public:
  explicit WeightSource(std::uint64_t seed) : seed_(seed) {}

  [[nodiscard]] TensorFiller filler(const ShardTensor& tensor);

 private:
  std::uint64_t seed_;
  // By distribution (an enumerator of the .cpp) and columns.
  std::map<std::pair<int, std::uint64_t>, std::shared_ptr<const TensorFiller::Table>> tables_;
};

}  // namespace k3::tools

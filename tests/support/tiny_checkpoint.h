// A small checkpoint in the released layout, built from the tensor plan, that tests can damage.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "k3/config.h"

namespace k3::test {

struct TinyTensor {
  std::string dtype;
  std::vector<std::size_t> shape;
  std::string data;
};

// Three layers: KDA with a dense MLP, KDA with experts, Gated MLA with experts.
ModelConfig tiny_config();

// Every tensor holds bytes that follow from its name. Layer L lies in shard L + 1, the model level
// in the last one; experts are not ordered by id.
class TinyCheckpoint {
 public:
  explicit TinyCheckpoint(const ModelConfig& config);

  [[nodiscard]] TinyTensor& at(const std::string& name) { return tensors_.at(name).tensor; }

  void erase(const std::string& name) { tensors_.erase(name); }

  // Replaces dtype, shape and data; the data are `bytes` or follow from the name when it is empty.
  void set(const std::string& name,
           const std::string& dtype,
           const std::vector<std::size_t>& shape,
           std::string bytes = "");

  // Places a tensor in another shard, from 1 to 4, with `gap` unused bytes before it.
  void move(const std::string& name, std::size_t shard, std::size_t gap = 0);

  [[nodiscard]] static std::string shard_name(std::size_t number);

  void write(const std::filesystem::path& directory) const;
  void write_weight_map(const std::filesystem::path& directory) const;

 private:
  struct Placed {
    TinyTensor tensor;
    std::size_t shard = 1;
    std::size_t gap = 0;
  };

  std::map<std::string, Placed> tensors_;
};

}  // namespace k3::test

// Numbered shard names: "model-00003-of-000096.safetensors".
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace k3::io {

struct AbsentShards {
  std::size_t count = 0;
  std::string first;  // file name of the lowest number that is absent; empty for none
};

// Which numbers are absent, by the total that the first numbered name states. None when no name
// is numbered.
[[nodiscard]] AbsentShards absent_shards(const std::vector<std::string>& names);

}  // namespace k3::io

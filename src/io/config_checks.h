// What the values of a config must satisfy together, whatever file they come from.
#pragma once

#include <cstddef>
#include <limits>
#include <string>

#include "k3/config.h"

namespace k3::io {

// Largest value of a size: token ids are int32.
inline constexpr std::size_t kMaxConfigSize = std::numeric_limits<std::int32_t>::max();

inline constexpr std::size_t kMaxLayers = 4096;  // released: 93

// Throws Error(kConfig) naming `where` and the key: top-k above the expert count, more dense layers
// than layers, no KDA layer, widths that MXFP4 groups do not divide, products that overflow.
void check_config(const ModelConfig& config, const std::string& where);

}  // namespace k3::io

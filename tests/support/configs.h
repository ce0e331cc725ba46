// Small configs as JSON documents, for tests to alter.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "k3/config.h"

namespace k3::test {

// A valid model of five layers (four MoE; layers 4 and 5 Gated MLA) in both shapes.
nlohmann::json flat_config();
nlohmann::json nested_config();

// Dotted paths of every required key of a shape.
std::vector<std::string> required_paths(bool nested);

// Keys of the flat shape that hold sizes.
std::vector<std::string> size_paths();

// What the released config.json says.
ModelConfig released_values();

}  // namespace k3::test

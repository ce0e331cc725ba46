// The config.json of a replica.
#pragma once

#include <string>

#include "k3/config.h"

namespace k3::tools {

// JSON text in the released nested shape; reading it gives `config` again.
[[nodiscard]] std::string config_text(const ModelConfig& config);

}  // namespace k3::tools

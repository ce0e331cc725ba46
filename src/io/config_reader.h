// Reads config.json of a checkpoint: the released nested shape or the flat one (docs/formats.md).
//
// Nothing is defaulted and nothing is guessed: whatever cannot be read with confidence is refused
// with Error(kConfig) naming the file, the key, what was expected and what was found.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "k3/config.h"

namespace k3::io {

// Reads a config file of at most 4 MiB (the released one has 7 kB).
[[nodiscard]] ModelConfig read_config(const std::filesystem::path& path);

// The same for its text; `where` is the file's name in messages.
[[nodiscard]] ModelConfig parse_config(std::string_view text, const std::string& where);

}  // namespace k3::io

// model.safetensors.index.json, the list of which shard holds which tensor.
//
// The engine takes tensors from the shards' own headers; this file only serves to say, when a tensor
// is missing, which shard ought to hold it. So it is read on that path alone.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "io/file.h"

namespace k3::io {

// File name of the shard that should hold `tensor`; nothing when the list is absent, unreadable,
// malformed, over 256 MiB, or does not name the tensor. Never throws for what the file holds.
[[nodiscard]] std::optional<std::string> shard_of_tensor(FileSystem& file_system,
                                                         const std::filesystem::path& directory,
                                                         std::string_view tensor);

}  // namespace k3::io

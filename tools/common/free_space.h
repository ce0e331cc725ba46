// Refuses to fill a disk.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace k3::tools {

// Throws k3::Error(kUsage) when `directory` is none, or writing `bytes` there would leave less than
// a tenth of the disk or 1 GB, whichever is less. `purpose` completes "disk too full for".
void require_free_space(const std::filesystem::path& directory,
                        std::uint64_t bytes,
                        const std::string& purpose);

}  // namespace k3::tools

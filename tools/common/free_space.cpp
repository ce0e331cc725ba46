#include "free_space.h"

#include <algorithm>
#include <system_error>

#include "k3/errors.h"

namespace k3::tools {

void require_free_space(const std::filesystem::path& directory,
                        std::uint64_t bytes,
                        const std::string& purpose) {
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(directory, error);
  if (error || !std::filesystem::is_directory(directory, error)) {
    throw Error(ErrorKind::kUsage,
                ErrorDetail{.what = "no place for " + purpose,
                            .where = directory.string(),
                            .expected = "a directory",
                            .found = error ? error.message() : "something else"});
  }
  const std::uint64_t reserve = std::min<std::uint64_t>(space.capacity / 10, 1'000'000'000);
  if (space.available < reserve || space.available - reserve < bytes) {
    throw Error(ErrorKind::kUsage,
                ErrorDetail{.what = "disk too full for " + purpose,
                            .where = directory.string(),
                            .expected = std::to_string(bytes) + " bytes free and " +
                                        std::to_string(reserve) + " left over",
                            .found = std::to_string(space.available) + " bytes"});
  }
}

}  // namespace k3::tools

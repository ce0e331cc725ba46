#include "support/paths.h"

#include <cstdlib>
#include <stdexcept>

namespace k3::test {

std::filesystem::path fixture(const std::string& name) {
  return std::filesystem::path(K3_SOURCE_DIR) / "tests" / "fixtures" / name;
}

std::filesystem::path shared(const std::string& name) {
  const auto path = std::filesystem::path(K3_SOURCE_DIR).parent_path() / "shared" / name;
  return std::filesystem::exists(path) ? path : std::filesystem::path();
}

std::string missing_shared(const std::string& name) {
  return "../shared/" + name + " is not here: this comparison with others' data is skipped";
}

TempDir::TempDir() {
  std::string pattern = (std::filesystem::temp_directory_path() / "k3-test-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) {
    throw std::runtime_error("cannot make a folder from " + pattern);
  }
  path_ = pattern;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace k3::test

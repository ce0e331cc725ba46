// Where tests find their data.
#pragma once

#include <filesystem>
#include <string>

namespace k3::test {

// tests/fixtures/<name>, committed with the project.
std::filesystem::path fixture(const std::string& name);

// A folder of others' data beside the checkout (../shared/<name>). Empty when it is not there:
// a test then skips with GTEST_SKIP() << missing_shared(name).
std::filesystem::path shared(const std::string& name);
std::string missing_shared(const std::string& name);

// A new empty folder, removed with everything in it on destruction.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace k3::test

// One operation of tests/fixtures/ops, computed by the float64 reference.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/numbers.h"
#include "support/paths.h"
#include "support/safetensors_file.h"

namespace k3::test {

// The cases of one operation: tensors named "<case>.<name>".
class FixtureOperation {
 public:
  explicit FixtureOperation(const std::string& name)
      : file_(fixture("ops/" + name + ".safetensors")) {
    for (const std::string& tensor : file_.names()) {
      cases_.insert(tensor.substr(0, tensor.find('.')));
    }
  }

  [[nodiscard]] const std::set<std::string>& cases() const { return cases_; }

  [[nodiscard]] const SafetensorsFile& file() const { return file_; }

  [[nodiscard]] std::size_t extent(const std::string& tensor, std::size_t axis) const {
    return static_cast<std::size_t>(file_.shape(tensor).at(axis));
  }

 private:
  SafetensorsFile file_;
  std::set<std::string> cases_;
};

// Within `share` of the largest magnitude expected.
inline testing::AssertionResult close(const std::vector<float>& found,
                                      const std::vector<float>& expected,
                                      double share = 2e-6) {
  return within(found, expected, share * largest_magnitude(expected));
}

}  // namespace k3::test

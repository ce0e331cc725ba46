// Operations recorded by others (../shared/peer/ops): JSON objects of arrays and numbers.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace k3::test {

class PeerData {
 public:
  // ../shared/peer/ops/<name>.json
  explicit PeerData(const std::string& name);

  [[nodiscard]] std::vector<float> array(const std::string& key) const;
  [[nodiscard]] double number(const std::string& key) const;
  [[nodiscard]] std::size_t size(const std::string& key) const;

 private:
  nlohmann::json json_;
};

// Every element within factor * (1e-5 + 1e-4 * |expected|), the tolerance that others state.
[[nodiscard]] testing::AssertionResult peer_match(const std::vector<float>& found,
                                                  const std::vector<float>& expected,
                                                  double factor = 1.0);

}  // namespace k3::test

#include "support/peer_data.h"

#include <cmath>
#include <fstream>

#include "support/paths.h"

namespace k3::test {

PeerData::PeerData(const std::string& name)
    : json_(nlohmann::json::parse(std::ifstream(shared("peer/ops") / (name + ".json")))) {}

std::vector<float> PeerData::array(const std::string& key) const {
  return json_.at(key).at("data").get<std::vector<float>>();
}

double PeerData::number(const std::string& key) const {
  return json_.at(key).get<double>();
}

std::size_t PeerData::size(const std::string& key) const {
  return json_.at(key).get<std::size_t>();
}

testing::AssertionResult peer_match(const std::vector<float>& found,
                                    const std::vector<float>& expected,
                                    double factor) {
  if (found.size() != expected.size()) {
    return testing::AssertionFailure() << found.size() << " values, expected " << expected.size();
  }
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double truth = static_cast<double>(expected[i]);
    const double difference = std::fabs(static_cast<double>(found[i]) - truth);
    if (!(difference <= factor * (1e-5 + 1e-4 * std::fabs(truth)))) {
      return testing::AssertionFailure()
             << "value " << i << " is " << found[i] << ", expected " << expected[i];
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace k3::test

// Altered configs, and the refusals that they must meet.
#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "k3/config.h"

namespace k3::test {

// A member by its dotted path ("text_config.hidden_size"), made when it is absent.
nlohmann::json& member(nlohmann::json& document, std::string path);

// The small configs of support/configs.h with one value set, and any config without one.
nlohmann::json nested_with(const std::string& path, const nlohmann::json& value);
nlohmann::json flat_with(const std::string& path, const nlohmann::json& value);
nlohmann::json without(nlohmann::json document, const std::string& path);

ModelConfig parse(const nlohmann::json& document);

// Reading ends in Error(kConfig) whose message holds the file's name and all `parts`.
testing::AssertionResult config_refused(const nlohmann::json& document,
                                        std::vector<std::string> parts);
testing::AssertionResult config_text_refused(const std::string& text,
                                             std::vector<std::string> parts);

}  // namespace k3::test

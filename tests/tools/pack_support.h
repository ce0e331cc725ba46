// What the tests of k3-pack share.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "support/run_program.h"

namespace k3::tools {

// The files of a finished trunk.
inline const std::vector<std::string> kWhole = {"trunk.bin", "trunk.json"};

inline test::ProgramResult run_pack(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), K3_PACK);
  return test::run_program(arguments);
}

// Names in a folder, sorted.
inline std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace k3::tools

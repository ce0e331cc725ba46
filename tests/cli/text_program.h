// Tests of the program with text: the model demo and the vocabulary of bytes, which fits it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "k3/tokenizer.h"

#include "support/paths.h"
#include "support/run_program.h"
#include "support/tokenizer_files.h"

namespace k3::test {

using Ids = std::vector<std::int32_t>;

// Contains `part`; shows the whole text otherwise.
inline testing::AssertionResult has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << "no \"" << part << "\" in: " << text;
}

// "1,2,3"
inline std::string joined(const Ids& ids) {
  std::string text;
  for (const std::int32_t id : ids) {
    text.append(text.empty() ? "" : ",").append(std::to_string(id));
  }
  return text;
}

class TextProgramTest : public testing::Test {
 protected:
  // k3 demo --tok bytes, the record going to the test's folder, and these.
  [[nodiscard]] std::vector<std::string> command(const std::vector<std::string>& arguments) const {
    std::vector<std::string> all = {K3_EXECUTABLE, demo(),  "--tok",
                                    bytes(),       "--out", out().string()};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return all;
  }

  [[nodiscard]] ProgramResult run(const std::vector<std::string>& arguments,
                                  const std::string& input = "") const {
    return run_with_input(command(arguments), input);
  }

  static std::string demo() { return fixture("models/demo").string(); }

  static std::string bytes() { return fixture("tokenizer/bytes").string(); }

  [[nodiscard]] std::filesystem::path out() const { return dir_.path() / "run.json"; }

  [[nodiscard]] nlohmann::json record() const {
    return nlohmann::json::parse(std::ifstream(out()));
  }

  [[nodiscard]] Ids generated() const { return record().at("generated_ids").get<Ids>(); }

  TempDir dir_;
  Tokenizer tokenizer_ = byte_tokenizer_files().load();
};

}  // namespace k3::test

#include "support/config_edits.h"

#include "k3/errors.h"

#include "io/config_reader.h"
#include "support/configs.h"
#include "support/expect_error.h"

namespace k3::test {
namespace {

constexpr const char* kWhere = "some/config.json";

}  // namespace

using nlohmann::json;

json& member(json& document, std::string path) {
  for (char& character : path) {
    character = character == '.' ? '/' : character;
  }
  return document[json::json_pointer("/" + path)];
}

json nested_with(const std::string& path, const json& value) {
  json document = nested_config();
  member(document, path) = value;
  return document;
}

json flat_with(const std::string& path, const json& value) {
  json document = flat_config();
  member(document, path) = value;
  return document;
}

json without(json document, const std::string& path) {
  const std::size_t dot = path.rfind('.');
  if (dot == std::string::npos) {
    document.erase(path);
  } else {
    member(document, path.substr(0, dot)).erase(path.substr(dot + 1));
  }
  return document;
}

ModelConfig parse(const json& document) {
  return io::parse_config(document.dump(), kWhere);
}

testing::AssertionResult config_refused(const json& document, std::vector<std::string> parts) {
  parts.emplace_back(kWhere);
  return throws(ErrorKind::kConfig, parts, [&] { parse(document); });
}

testing::AssertionResult config_text_refused(const std::string& text,
                                             std::vector<std::string> parts) {
  parts.emplace_back(kWhere);
  return throws(ErrorKind::kConfig, parts,
                [&] { static_cast<void>(io::parse_config(text, kWhere)); });
}

}  // namespace k3::test

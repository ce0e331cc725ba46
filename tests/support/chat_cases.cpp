#include "support/chat_cases.h"

#include <fstream>

#include <nlohmann/json.hpp>

#include "support/paths.h"

namespace k3::test {
namespace {

using nlohmann::ordered_json;  // the order of a call's arguments counts

ChatCase read_case(const std::string& name, const ordered_json& json) {
  ChatCase result;
  result.name = name;
  ordered_json options = json.at("options");
  const bool thinking = options.value("thinking", true);
  const auto effort = options.value("thinking_effort", std::string("max"));
  const bool prefix = options.value("add_generation_prompt", true);
  for (const char* key : {"thinking", "thinking_effort", "add_generation_prompt"}) {
    options.erase(key);
  }
  if (!options.empty()) {
    result.lines = ordered_json({{"options", options}}).dump() + "\n";
  }
  for (const ordered_json& message : json.at("messages")) {
    result.lines += message.dump() + "\n";
  }
  result.chat = read_chat_history({.text = result.lines, .name = name});
  result.chat.options.thinking = thinking ? thinking_of(effort).value() : Thinking::kOff;
  result.chat.options.generation_prefix = prefix;
  result.text = json.at("text").get<std::string>();
  result.ids = json.at("ids").get<std::vector<std::int32_t>>();
  return result;
}

}  // namespace

std::vector<ChatCase> chat_fixtures() {
  std::ifstream file(fixture("tokenizer/chats.json"));
  const ordered_json fixtures = ordered_json::parse(file);
  std::vector<ChatCase> cases;
  for (const ordered_json& json : fixtures) {
    cases.push_back(read_case(json.at("name").get<std::string>(), json));
  }
  return cases;
}

std::vector<ChatCase> chat_goldens(const std::filesystem::path& path) {
  std::ifstream file(path);
  const ordered_json goldens = ordered_json::parse(file);
  std::vector<ChatCase> cases;
  for (const auto& [name, json] : goldens.items()) {
    if (!name.starts_with('_')) {
      cases.push_back(read_case(name, json));
    }
  }
  return cases;
}

}  // namespace k3::test

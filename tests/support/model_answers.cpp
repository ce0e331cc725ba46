#include "support/model_answers.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <numeric>
#include <span>

#include <nlohmann/json.hpp>

#include "support/numbers.h"
#include "support/paths.h"
#include "support/safetensors_file.h"

namespace k3::test {
namespace {

constexpr double kGate = 2e-5;

nlohmann::json read_json(const std::filesystem::path& path) {
  return nlohmann::json::parse(std::ifstream(path));
}

PromptAnswer parse_prompt(const std::string& name, const nlohmann::json& prompt) {
  PromptAnswer answer;
  answer.name = name;
  answer.ids = prompt.at("ids").get<std::vector<std::int32_t>>();
  answer.generated = prompt.at("generated_ids").get<std::vector<std::int32_t>>();
  answer.predictions = prompt.at("tf_pred").get<std::vector<std::int32_t>>();
  return answer;
}

}  // namespace

std::vector<std::int32_t> PromptAnswer::full_ids() const {
  std::vector<std::int32_t> full = ids;
  full.insert(full.end(), generated.begin(), generated.end());
  return full;
}

std::vector<PromptAnswer> fixture_answers(const std::string& model) {
  const nlohmann::json json = read_json(fixture("models/" + model + ".expected.json"));
  const SafetensorsFile tensors(fixture("models/" + model + ".expected.safetensors"));
  std::vector<PromptAnswer> answers;
  for (const auto& [name, prompt] : json.at("prompts").items()) {
    answers.push_back(parse_prompt(name, prompt));
    answers.back().logits = tensors.floats(name + ".logits");
    answers.back().f32_error = prompt.at("f32_error").at("all").get<double>();
  }
  return answers;
}

std::vector<PromptAnswer> acceptance_answers() {
  const std::filesystem::path root = shared("acceptance/released-like");
  const nlohmann::json json = read_json(root / "expected.json");
  std::vector<PromptAnswer> answers;
  for (const auto& [name, prompt] : json.at("prompts").items()) {
    answers.push_back(parse_prompt(name, prompt));
    answers.back().logits = read_floats(root / prompt.at("tf_logits_file").get<std::string>());
    answers.back().f32_error =
        prompt.at("torch_f32_vs_f64_max_abs").at("all_positions").get<double>();
  }
  return answers;
}

std::vector<float> read_floats(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  std::vector<float> values(bytes.size() / sizeof(float));
  std::copy_n(bytes.data(), values.size() * sizeof(float), reinterpret_cast<char*>(values.data()));
  return values;
}

std::vector<float> all_logits(Engine& engine,
                              const std::vector<std::int32_t>& ids,
                              std::size_t chunk) {
  const std::size_t vocab = engine.config().vocab_size;
  Session session = engine.new_session();
  std::vector<float> logits(ids.size() * vocab);
  const std::size_t step_size = chunk == 0 ? ids.size() : chunk;
  for (std::size_t first = 0; first < ids.size(); first += step_size) {
    const std::size_t count = std::min(step_size, ids.size() - first);
    std::vector<std::size_t> rows(count);
    std::iota(rows.begin(), rows.end(), 0U);
    const SessionStep step{&session, std::span(ids).subspan(first, count), rows};
    engine.forward({&step, 1}, std::span(logits).subspan(first * vocab, count * vocab));
  }
  return logits;
}

testing::AssertionResult logits_pass(const std::vector<float>& logits, const PromptAnswer& answer) {
  const std::size_t positions = answer.ids.size() + answer.generated.size();
  const std::size_t vocab = answer.logits.size() / positions;
  const std::size_t last = answer.ids.size() - 1;
  const double loose = std::max(kGate * largest_magnitude(answer.logits), 2.0 * answer.f32_error);
  for (std::size_t position = 0; position < logits.size() / vocab; ++position) {
    const std::span expected = std::span(answer.logits).subspan(position * vocab, vocab);
    const std::span found = std::span(logits).subspan(position * vocab, vocab);
    const double tolerance = position == last ? kGate * largest_magnitude(expected) : loose;
    const testing::AssertionResult result = within(found, expected, tolerance);
    if (!result) {
      return testing::AssertionFailure()
             << answer.name << ", position " << position << ": " << result.message();
    }
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult position_passes(const std::vector<float>& found,
                                         const std::vector<float>& expected) {
  return within(found, expected, kGate * largest_magnitude(expected));
}

}  // namespace k3::test

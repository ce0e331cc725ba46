// Weights that are broken stop a run with the layer where the first NaN or infinity appears.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <ios>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "k3/engine.h"
#include "k3/errors.h"
#include "k3/generate.h"

#include "io/config_reader.h"
#include "model/tensor_plan.h"
#include "runtime/checkpoint.h"
#include "support/model_answers.h"
#include "support/paths.h"

namespace k3 {
namespace {

using model::TensorRole;

constexpr const char* kModel = "deep";

// A copy of a fixture model in which single values are replaced.
class NonFinite : public testing::Test {
 protected:
  NonFinite() : answer_(test::fixture_answers(kModel).front()) {
    std::filesystem::copy(test::fixture(std::string("models/") + kModel), directory_.path(),
                          std::filesystem::copy_options::recursive);
  }

  // Value `index` of a BF16 or F32 tensor becomes one whose high 16 bits are `high`.
  void replace(std::size_t layer, TensorRole role, std::uint64_t index, std::uint16_t high) const {
    const ModelConfig config = io::read_config(directory_.path() / "config.json");
    const runtime::Checkpoint checkpoint(io::posix_file_system(), directory_.path(), config);
    const runtime::TensorExtent extent = checkpoint.tensor(layer, role);
    std::uint64_t values = 1;
    for (const std::uint64_t length : extent.shape) {
      values *= length;
    }
    ASSERT_LT(index, values);
    const std::uint64_t bytes = extent.nbytes / values;
    ASSERT_TRUE(bytes == 2 || bytes == 4) << extent.nbytes << " bytes of " << values << " values";
    std::fstream file(checkpoint.index().shard_path(extent.shard),
                      std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(extent.offset + (index + 1) * bytes - 2));
    file.put(static_cast<char>(high & 0xFFU)).put(static_cast<char>(high >> 8U));
    ASSERT_TRUE(file.good());
  }

  // What a run of `tokens` says; empty without an error. `generated` receives its tokens.
  [[nodiscard]] std::string message(std::size_t tokens,
                                    std::vector<std::int32_t>* generated) const {
    try {
      Engine engine(EngineOptions{.model_dir = directory_.path(), .threads = 2});
      const auto on_step = [&](const GenerateStep& step) {
        if (generated != nullptr) {
          generated->push_back(step.token);
        }
      };
      const GenerateResult result =
          generate(engine, answer_.ids, {.max_new_tokens = tokens, .on_step = on_step});
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kNonFinite) << error.what();
      EXPECT_EQ(exit_status(error.kind()), 1);
      return error.what();
    }
    return "";
  }

  [[nodiscard]] std::string message() const { return message(1, nullptr); }

  [[nodiscard]] ModelConfig config() const {
    return io::read_config(directory_.path() / "config.json");
  }

  test::TempDir directory_;
  test::PromptAnswer answer_;
};

constexpr std::uint16_t kNan = 0x7FC0;
constexpr std::uint16_t kInfinity = 0x7F80;
constexpr std::uint16_t kMinusInfinity = 0xFF80;

class NonFiniteLayer : public NonFinite, public testing::WithParamInterface<std::size_t> {};

TEST_P(NonFiniteLayer, ABrokenNormStopsTheRunWithItsLayer) {
  if (GetParam() >= config().num_hidden_layers) {
    GTEST_SKIP() << "the model has fewer layers";
  }
  const bool dense = GetParam() < config().first_k_dense_replace;
  for (const std::uint16_t value : {kNan, kInfinity, kMinusInfinity}) {
    if (dense && value != kNan) {
      continue;  // SiTU bounds what the dense MLP makes of an infinity
    }
    replace(GetParam(), TensorRole::kPostAttentionNorm, 3, value);
    const std::string text = message();
    EXPECT_NE(text.find("layer " + std::to_string(GetParam())), std::string::npos)
        << value << ": " << text;
  }
}

INSTANTIATE_TEST_SUITE_P(All, NonFiniteLayer, testing::Range<std::size_t>(0, 4));

TEST_F(NonFinite, ARouterThatIsNanSaysSo) {
  const std::size_t layer = config().num_hidden_layers - 1;
  replace(layer, TensorRole::kRouter, 5, kNan);
  EXPECT_EQ(message(), "layer " + std::to_string(layer) + ": a router score is not finite");
}

TEST_F(NonFinite, ABrokenHeadStopsBeforeAToken) {
  for (const std::uint16_t value : {kNan, kInfinity}) {
    replace(model::kNoIndex, TensorRole::kHead, 7, value);
    std::vector<std::int32_t> generated;
    EXPECT_EQ(message(4, &generated).find("logits: "), 0U);
    EXPECT_TRUE(generated.empty());
  }
}

// The prompt and the first token are those of the sound model: the broken row is read afterwards.
TEST_F(NonFinite, ABrokenEmbeddingStopsTheDecodeThatReadsIt) {
  const std::int32_t token = answer_.generated.front();
  for (const std::int32_t id : answer_.ids) {
    ASSERT_NE(id, token);
  }
  replace(model::kNoIndex, TensorRole::kEmbedding,
          static_cast<std::uint64_t>(token) * config().hidden_size + 1, kMinusInfinity);
  std::vector<std::int32_t> generated;
  EXPECT_EQ(message(4, &generated).find("embedding: "), 0U);
  EXPECT_EQ(generated, std::vector<std::int32_t>{token});
}

TEST_F(NonFinite, TheSoundCopyRuns) {
  EXPECT_EQ(message(2, nullptr), "");
}

}  // namespace
}  // namespace k3

// Finding and reading the files of a tokenizer.

#include "k3/tokenizer_files.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "support/paths.h"
#include "support/tokenizer_files.h"

namespace k3 {
namespace {

namespace fs = std::filesystem;

constexpr const char* kVariable = "K3_TOK_FILES";

// The variable as a test wants it, and afterwards as it was.
class TokenizerDirectory : public testing::Test {
 protected:
  void SetUp() override {
    if (const char* const value = std::getenv(kVariable)) {
      before_ = value;
    }
    unsetenv(kVariable);
  }

  void TearDown() override {
    if (before_) {
      setenv(kVariable, before_->c_str(), 1);
    } else {
      unsetenv(kVariable);
    }
  }

 private:
  std::optional<std::string> before_;
};

TEST_F(TokenizerDirectory, IsTheModelsByDefault) {
  EXPECT_EQ(tokenizer_directory(std::nullopt, "model"), "model");
}

TEST_F(TokenizerDirectory, IsThatOfTheEnvironmentBeforeTheModels) {
  setenv(kVariable, "environment", 1);
  EXPECT_EQ(tokenizer_directory(std::nullopt, "model"), "environment");
  setenv(kVariable, "", 1);
  EXPECT_EQ(tokenizer_directory(std::nullopt, "model"), "model");
}

TEST_F(TokenizerDirectory, IsTheChosenOneBeforeAll) {
  setenv(kVariable, "environment", 1);
  EXPECT_EQ(tokenizer_directory("chosen", "model"), "chosen");
}

// A copy of the small tokenizer that a test may damage.
class LoadTokenizer : public testing::Test {
 protected:
  LoadTokenizer() { fs::copy(test::fixture("tokenizer"), dir_.path()); }

  [[nodiscard]] testing::AssertionResult refused(const std::vector<std::string>& parts) const {
    return test::throws(ErrorKind::kUserFile, parts,
                        [this] { static_cast<void>(load_tokenizer(dir_.path())); });
  }

  [[nodiscard]] fs::path file(const char* name) const { return dir_.path() / name; }

  test::TempDir dir_;
};

TEST_F(LoadTokenizer, ReadsBothFiles) {
  const Tokenizer loaded = load_tokenizer(dir_.path());
  const Tokenizer wanted = test::small_tokenizer_files().load();
  EXPECT_EQ(loaded.vocab_size(), wanted.vocab_size());
  EXPECT_EQ(loaded.encode("Hello world"), wanted.encode("Hello world"));
}

TEST_F(LoadTokenizer, NamesTheFileThatIsMissing) {
  for (const char* name : {"tokenizer_config.json", "tiktoken.model"}) {
    fs::remove(file(name));
    EXPECT_TRUE(refused({file(name).string(), "cannot open", "No such file"}));
  }
}

TEST_F(LoadTokenizer, RefusesAFolderInPlaceOfAFile) {
  fs::remove(file("tiktoken.model"));
  fs::create_directory(file("tiktoken.model"));
  EXPECT_TRUE(refused({file("tiktoken.model").string(), "Is a directory"}));
}

TEST_F(LoadTokenizer, NamesTheFileAndTheLineThatAreWrong) {
  std::ofstream(file("tiktoken.model"), std::ios::app) << "IQ== 0\n";
  EXPECT_TRUE(refused({file("tiktoken.model").string() + ", line 769"}));
}

TEST_F(LoadTokenizer, NamesTheConfigThatIsWrong) {
  std::ofstream(file("tokenizer_config.json")) << "{\n}";
  EXPECT_TRUE(refused({file("tokenizer_config.json").string(), "added_tokens_decoder"}));
}

TEST_F(LoadTokenizer, RefusesAFileThatIsTooLarge) {
  // Without blocks on the disk.
  fs::resize_file(file("tokenizer_config.json"), (std::uintmax_t{1} << 24U) + 1);
  EXPECT_TRUE(refused({file("tokenizer_config.json").string(), "too large"}));
}

}  // namespace
}  // namespace k3

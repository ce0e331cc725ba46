#include "support/tokenizer_files.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>

#include "support/paths.h"

namespace k3::test {
namespace {

// The bytes of padded base64, digit by digit.
std::string decode_base64(const std::string& digits) {
  const std::string all = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bits;
  for (const char digit : digits) {
    for (unsigned bit = 32; digit != '=' && bit > 0; bit /= 2) {
      bits += (all.find(digit) & bit) != 0 ? '1' : '0';
    }
  }
  std::string bytes;
  for (std::size_t i = 0; i + 8 <= bits.size(); i += 8) {
    bytes += static_cast<char>(std::stoi(bits.substr(i, 8), nullptr, 2));
  }
  return bytes;
}

}  // namespace

Ranks TokenizerFiles::ranks() const {
  Ranks ranks;
  std::istringstream lines(model);
  std::string digits;
  for (std::int32_t rank = 0; lines >> digits >> rank;) {
    ranks[decode_base64(digits)] = rank;
  }
  return ranks;
}

TokenizerFiles read_tokenizer_files(const std::filesystem::path& directory) {
  return {read_bytes(directory / "tiktoken.model"),
          read_bytes(directory / "tokenizer_config.json")};
}

TokenizerFiles small_tokenizer_files() {
  return read_tokenizer_files(fixture("tokenizer"));
}

TokenizerFiles byte_tokenizer_files() {
  return read_tokenizer_files(fixture("tokenizer/bytes"));
}

std::filesystem::path released_tokenizer_directory() {
  const char* const chosen = std::getenv("K3_TOK_FILES");
  return chosen != nullptr && *chosen != '\0' ? std::filesystem::path(chosen)
                                              : shared("kimi-k3-tokenizer");
}

std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw std::runtime_error("cannot open " + path.string());
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace k3::test

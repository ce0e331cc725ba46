#include "k3/tokenizer_files.h"

#include <cstdint>
#include <cstdlib>
#include <string>

#include "io/file.h"

namespace k3 {
namespace {

constexpr const char* kModelFile = "tiktoken.model";
constexpr const char* kConfigFile = "tokenizer_config.json";
constexpr std::uint64_t kMaxModelBytes = std::uint64_t{1} << 28U;   // the released one has 2.8 MB
constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{1} << 24U;  // and this one 3.5 kB

std::string read(const std::filesystem::path& path, std::uint64_t max_bytes) {
  return io::read_whole(io::posix_file_system(), path, max_bytes, ErrorKind::kUserFile);
}

}  // namespace

std::filesystem::path tokenizer_directory(const std::optional<std::filesystem::path>& chosen,
                                          const std::filesystem::path& model_dir) {
  if (chosen) {
    return *chosen;
  }
  const char* const environment = std::getenv("K3_TOK_FILES");
  return environment != nullptr && *environment != '\0' ? std::filesystem::path(environment)
                                                        : model_dir;
}

Tokenizer load_tokenizer(const std::filesystem::path& directory) {
  const std::filesystem::path model = directory / kModelFile;
  const std::filesystem::path config = directory / kConfigFile;
  const std::string model_text = read(model, kMaxModelBytes);
  const std::string config_text = read(config, kMaxConfigBytes);
  return {{.text = model_text, .name = model.string()},
          {.text = config_text, .name = config.string()}};
}

}  // namespace k3

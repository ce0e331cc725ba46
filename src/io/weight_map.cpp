#include "io/weight_map.h"

#include <cstdint>

#include "k3/errors.h"

#include <simdjson.h>

namespace k3::io {
namespace {

constexpr const char* kFileName = "model.safetensors.index.json";
constexpr std::uint64_t kMaxBytes = std::uint64_t{256} << 20U;  // released: about 48 MB

}  // namespace

std::optional<std::string> shard_of_tensor(FileSystem& file_system,
                                           const std::filesystem::path& directory,
                                           std::string_view tensor) {
  std::string text;
  try {
    text = read_whole(file_system, directory / kFileName, kMaxBytes, ErrorKind::kCheckpoint);
  } catch (const Error&) {
    return std::nullopt;  // a hint that is not there
  }
  text.reserve(text.size() + simdjson::SIMDJSON_PADDING);
  simdjson::dom::parser parser;
  simdjson::dom::object map;
  if (parser.parse(text.data(), text.size(), /*realloc_if_needed=*/false)["weight_map"].get(map) !=
      simdjson::SUCCESS) {
    return std::nullopt;
  }
  for (const simdjson::dom::key_value_pair field : map) {
    std::string_view shard;
    if (field.key == tensor && field.value.get(shard) == simdjson::SUCCESS) {
      return std::string(shard);
    }
  }
  return std::nullopt;
}

}  // namespace k3::io

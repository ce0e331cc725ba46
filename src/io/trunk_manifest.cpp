#include "io/trunk_manifest.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <unordered_map>
#include <utility>

#include "k3/errors.h"

#include "base/dtype.h"
#include "base/printable.h"
#include "io/config_checks.h"
#include "io/huge_integer.h"
#include "io/json_kind.h"
#include "io/safetensors_types.h"
#include <simdjson.h>

namespace k3::io {
namespace {

namespace dom = simdjson::dom;

constexpr std::uint64_t kMaxFileBytes = std::uint64_t{256} << 20U;
constexpr std::uint64_t kMaxEnd = std::uint64_t{1} << 63U;  // offsets of files are signed
constexpr std::size_t kChecksumDigits = 32;

// One object of the manifest, each of its keys there once. `name` is what messages call it:
// "trunk.json: layers[2]".
class Object {
 public:
  Object(std::string name, const dom::element& value) : name_(std::move(name)) {
    dom::object fields;
    if (value.get(fields) != simdjson::SUCCESS) {
      refuse_user_file(name_, "wrong type", "an object", json_kind(value));
    }
    for (const dom::key_value_pair field : fields) {
      if (!fields_.emplace(field.key, field.value).second) {
        refuse_user_file(name_of(field.key), "duplicate key", "it once", "it twice");
      }
    }
  }

  [[nodiscard]] std::string name_of(std::string_view key) const {
    return name_ + ": " + printable(key);
  }

  [[nodiscard]] const std::string& name() const { return name_; }

  [[nodiscard]] const std::unordered_map<std::string_view, dom::element>& fields() const {
    return fields_;
  }

  [[nodiscard]] std::optional<dom::element> find(std::string_view key) const {
    const auto found = fields_.find(key);
    return found == fields_.end() ? std::nullopt : std::optional(found->second);
  }

  [[nodiscard]] dom::element require(std::string_view key) const {
    const std::optional<dom::element> found = find(key);
    if (!found.has_value()) {
      refuse_user_file(name_of(key), "missing key", "it", "none");
    }
    return *found;
  }

  [[nodiscard]] std::uint64_t whole_number(std::string_view key) const {
    return as_whole_number(key, require(key));
  }

  [[nodiscard]] std::string text(std::string_view key) const {
    std::string_view found;
    const dom::element value = require(key);
    if (value.get(found) != simdjson::SUCCESS) {
      refuse_user_file(name_of(key), "wrong type", "a string", json_kind(value));
    }
    return std::string(found);
  }

  [[nodiscard]] dom::array array(std::string_view key) const {
    dom::array found;
    const dom::element value = require(key);
    if (value.get(found) != simdjson::SUCCESS) {
      refuse_user_file(name_of(key), "wrong type", "an array", json_kind(value));
    }
    return found;
  }

  [[nodiscard]] std::vector<std::uint64_t> whole_numbers(std::string_view key) const {
    std::vector<std::uint64_t> numbers;
    for (const dom::element value : array(key)) {
      numbers.push_back(as_whole_number(key, value));
    }
    return numbers;
  }

 private:
  // Doubles are refused even when whole: beyond 2^53 they are no exact offsets.
  [[nodiscard]] std::uint64_t as_whole_number(std::string_view key,
                                              const dom::element& value) const {
    std::uint64_t number = 0;
    if (value.get(number) != simdjson::SUCCESS) {
      refuse_user_file(name_of(key), "wrong number", "a whole number of 0 to 2^64 - 1",
                       json_kind(value));
    }
    return number;
  }

  std::string name_;
  std::unordered_map<std::string_view, dom::element> fields_;
};

// A range of bytes and how to name it.
struct Range {
  std::uint64_t begin;
  std::uint64_t end;
  std::string name;
};

void refuse_overlap(std::vector<Range> ranges, const std::string& where) {
  std::ranges::sort(ranges, {}, &Range::begin);
  for (std::size_t next = 1; next < ranges.size(); ++next) {
    if (ranges[next].begin < ranges[next - 1].end) {
      refuse_user_file(where + ": " + ranges[next].name, "overlaps " + ranges[next - 1].name,
                       "to begin at " + std::to_string(ranges[next - 1].end) + " or later",
                       std::to_string(ranges[next].begin));
    }
  }
}

TrunkTensor read_tensor(const Object& object, std::uint64_t run_bytes) {
  TrunkTensor tensor{.offset = object.whole_number("off"),
                     .nbytes = object.whole_number("nbytes"),
                     .dtype = object.text("dtype"),
                     .shape = object.whole_numbers("shape")};
  if (tensor.offset > run_bytes || tensor.nbytes > run_bytes - tensor.offset) {
    refuse_user_file(object.name(), "outside its run",
                     "off + nbytes of at most " + std::to_string(run_bytes),
                     std::to_string(tensor.offset) + " + " + std::to_string(tensor.nbytes));
  }
  const std::uint64_t element = element_bytes(dtype_from_name(tensor.dtype), tensor.dtype);
  const auto bytes = tensor_bytes(tensor.shape, std::max<std::uint64_t>(element, 1));
  if (!bytes.has_value()) {
    refuse_user_file(object.name_of("shape"), "shape too large", "a size below 2^64 bytes",
                     printable(shape_text(tensor.shape)));
  }
  if (element != 0 && *bytes != tensor.nbytes) {
    refuse_user_file(object.name_of("nbytes"), "disagrees with shape and dtype",
                     std::to_string(*bytes), std::to_string(tensor.nbytes));
  }
  return tensor;
}

std::map<std::string, TrunkTensor, std::less<>> read_tensors(const Object& layer,
                                                             std::uint64_t run_bytes) {
  std::map<std::string, TrunkTensor, std::less<>> tensors;
  std::vector<Range> ranges;
  const Object listed(layer.name_of("tensors"), layer.require("tensors"));
  for (const auto& [name, value] : listed.fields()) {
    TrunkTensor tensor = read_tensor(Object(listed.name_of(name), value), run_bytes);
    if (tensor.nbytes > 0) {  // an empty tensor covers no byte
      ranges.push_back({tensor.offset, tensor.offset + tensor.nbytes, printable(name)});
    }
    tensors.emplace(name, std::move(tensor));
  }
  refuse_overlap(std::move(ranges), listed.name());
  return tensors;
}

// An optional checksum: empty when the key is absent.
std::string read_checksum(const Object& object, std::string_view key) {
  if (!object.find(key).has_value()) {
    return "";
  }
  std::string text = object.text(key);
  if (text.size() != kChecksumDigits ||
      text.find_first_not_of("0123456789abcdef") != std::string::npos) {
    refuse_user_file(object.name_of(key), "bad checksum", "32 hexadecimal digits",
                     printable(text, 80));
  }
  return text;
}

TrunkRun read_run(const Object& layer, const TrunkManifest& manifest) {
  TrunkRun run{.layer = static_cast<std::size_t>(layer.whole_number("layer")),
               .offset = layer.whole_number("file_off"),
               .nbytes = layer.whole_number("nbytes"),
               .xxh128 = read_checksum(layer, "xxh128"),
               .tensors = {}};
  if (run.layer >= manifest.layer_count) {
    refuse_user_file(layer.name_of("layer"), "no such layer",
                     "below n_layers, " + std::to_string(manifest.layer_count),
                     std::to_string(run.layer));
  }
  if (run.offset % manifest.alignment != 0) {
    refuse_user_file(layer.name_of("file_off"), "not aligned",
                     "a multiple of " + std::to_string(manifest.alignment),
                     std::to_string(run.offset));
  }
  if (run.offset >= kMaxEnd || run.nbytes > kMaxEnd - run.offset) {
    refuse_user_file(layer.name_of("nbytes"), "run too long", "an end below 2^63",
                     std::to_string(run.offset) + " + " + std::to_string(run.nbytes));
  }
  run.tensors = read_tensors(layer, run.nbytes);
  return run;
}

void read_runs(const Object& document, TrunkManifest& manifest, const std::string& where) {
  std::vector<Range> ranges;
  std::size_t index = 0;
  for (const dom::element value : document.array("layers")) {
    const Object layer(where + ": layers[" + std::to_string(index++) + "]", value);
    TrunkRun run = read_run(layer, manifest);
    const std::string name = "layer " + std::to_string(run.layer);
    if (run.nbytes > 0) {
      ranges.push_back({run.offset, run.offset + run.nbytes, "run of " + name});
    }
    if (!manifest.runs.emplace(run.layer, std::move(run)).second) {
      refuse_user_file(layer.name_of("layer"), "duplicate layer", "each layer once",
                       name + " twice");
    }
  }
  refuse_overlap(std::move(ranges), where);
}

dom::element parse_json(dom::parser& parser, std::string_view text, const std::string& where) {
  dom::element document;
  const simdjson::error_code fault = parser.parse(text.data(), text.size()).get(document);
  if (fault == simdjson::NUMBER_ERROR) {
    const auto bad = find_huge_integer(text);
    if (bad.has_value()) {
      refuse_user_file(where + ": " + printable(bad->key), "number too large",
                       "a whole number below 2^64", printable(bad->digits, 40));
    }
  }
  if (fault != simdjson::SUCCESS) {
    refuse_user_file(where, "not valid JSON", "a JSON object", simdjson::error_message(fault));
  }
  return document;
}

}  // namespace

std::uint64_t TrunkManifest::data_bytes() const {
  std::uint64_t end = 0;
  for (const auto& [layer, run] : runs) {
    end = std::max(end, run.offset + run.nbytes);
  }
  return end;
}

TrunkManifest parse_trunk_manifest(std::string_view text, const std::string& where) {
  if (text.empty()) {
    refuse_user_file(where, "empty file", "a JSON object", "0 bytes");
  }
  dom::parser parser;
  const Object document(where, parse_json(parser, text, where));
  TrunkManifest manifest;
  const std::uint64_t layers = document.whole_number("n_layers");
  if (layers == 0 || layers > kMaxLayers) {
    refuse_user_file(document.name_of("n_layers"), "bad number of layers",
                     "1 to " + std::to_string(kMaxLayers), std::to_string(layers));
  }
  manifest.layer_count = static_cast<std::size_t>(layers);
  manifest.alignment = document.whole_number("align");
  if (manifest.alignment < kTrunkAlignment || !std::has_single_bit(manifest.alignment)) {
    refuse_user_file(document.name_of("align"), "bad alignment",
                     "a power of two from " + std::to_string(kTrunkAlignment) + " on",
                     std::to_string(manifest.alignment));
  }
  manifest.source_xxh128 = read_checksum(document, "source_xxh128");
  read_runs(document, manifest, where);
  return manifest;
}

TrunkManifest read_trunk_manifest(FileSystem& file_system, const std::filesystem::path& path) {
  const std::string text = read_whole(file_system, path, kMaxFileBytes, ErrorKind::kUserFile);
  return parse_trunk_manifest(text, path.string());
}

}  // namespace k3::io

#include "io/config_reader.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

// The library never aborts: what it finds in a file is reported by exceptions, never by assert().
#define JSON_ASSERT(condition) static_cast<void>(0)  // NOLINT(readability-identifier-naming)
#include <nlohmann/json.hpp>

#include "k3/errors.h"

#include "base/printable.h"
#include "io/config_checks.h"
#include "io/file.h"

namespace k3::io {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxFileBytes = std::uint64_t{4} << 20U;
constexpr int kMaxDepth = 64;  // the released file nests 6 deep
constexpr std::size_t kGroupSize = 32;
constexpr const char* kQuantizationFormat = "mxfp4-pack-quantized";

// A JSON value as a message shows it: scalars as written, containers by their kind.
std::string shown(const json& value) {
  if (value.is_object()) {
    return "an object";
  }
  if (value.is_array()) {
    return "an array";
  }
  return printable(value.dump(), 80);
}

// What all sections of one file share.
struct Source {
  const std::string& where;          // the file's name
  std::vector<std::string> missing;  // full names of required keys that are absent

  [[noreturn]] void refuse(const std::string& key,
                           const std::string& expected,
                           const std::string& found) const {
    throw Error(
        ErrorKind::kConfig,
        ErrorDetail{.what = printable(key), .where = where, .expected = expected, .found = found});
  }
};

// One JSON object of the file; `prefix` is its full name with a trailing dot. An absent object
// is a section without keys, so that each of its required names counts as missing.
class Section {
 public:
  Section(Source& source, const json* object, std::string prefix)
      : source_(&source), object_(object), prefix_(std::move(prefix)) {}

  [[nodiscard]] const json* find(const std::string& key) const {
    if (object_ == nullptr) {
      return nullptr;
    }
    const auto found = object_->find(key);
    return found == object_->end() ? nullptr : &*found;
  }

  // A member object; absent is fine, another type is not.
  [[nodiscard]] Section child(const std::string& key) const {
    const json* const value = find(key);
    if (value != nullptr && !value->is_object()) {
      refuse(key, "an object", shown(*value));
    }
    return {*source_, value, prefix_ + key + "."};
  }

  [[nodiscard]] bool present() const { return object_ != nullptr; }

  [[nodiscard]] const json& object() const { return *object_; }

  // A whole number of `least` to `most`. 1.0 is refused: a size is written as an integer.
  [[nodiscard]] std::size_t size(const std::string& key,
                                 std::size_t least = 1,
                                 std::size_t most = kMaxConfigSize) const {
    const json* const value = require(key);
    return value == nullptr ? least : whole_number(key, *value, least, most);
  }

  [[nodiscard]] double number(const std::string& key) const {
    const json* const value = require(key);
    if (value == nullptr) {
      return 0.0;
    }
    if (!value->is_number() || !std::isfinite(value->get<double>())) {
      refuse(key, "a finite number", shown(*value));
    }
    return value->get<double>();
  }

  [[nodiscard]] double positive_number(const std::string& key) const {
    const double value = number(key);
    if (find(key) != nullptr && value <= 0.0) {
      refuse(key, "a positive number", shown(*find(key)));
    }
    return value;
  }

  [[nodiscard]] bool flag(const std::string& key) const {
    const json* const value = require(key);
    if (value == nullptr) {
      return false;
    }
    if (!value->is_boolean()) {
      refuse(key, "true or false", shown(*value));
    }
    return value->get<bool>();
  }

  // One-based layer indices, each at most once, as flags per zero-based layer.
  [[nodiscard]] std::vector<bool> layer_set(const std::string& key, std::size_t layers) const {
    std::vector<bool> set(layers, false);
    const json* const value = require(key);
    if (value == nullptr) {
      return set;
    }
    if (!value->is_array()) {
      refuse(key, "an array of layer indices", shown(*value));
    }
    for (const json& element : *value) {
      const std::size_t index = whole_number(key, element, 1, layers);
      if (set[index - 1]) {
        refuse(key, "each layer once", std::to_string(index) + " twice");
      }
      set[index - 1] = true;
    }
    return set;
  }

  // Absent, or exactly `expected`: another value would be another model.
  void only(const std::string& key, const json& expected) const {
    const json* const value = find(key);
    if (value != nullptr && (value->type_name() != std::string_view(expected.type_name()) ||
                             value->is_number_float() || *value != expected)) {
      refuse(key, shown(expected), shown(*value));
    }
  }

  [[noreturn]] void refuse(const std::string& key,
                           const std::string& expected,
                           const std::string& found) const {
    source_->refuse(prefix_ + key, expected, found);
  }

  void report_missing(const std::string& key) const { source_->missing.push_back(prefix_ + key); }

 private:
  [[nodiscard]] const json* require(const std::string& key) const {
    const json* const value = find(key);
    if (value == nullptr) {
      report_missing(key);
    }
    return value;
  }

  [[nodiscard]] std::size_t whole_number(const std::string& key,
                                         const json& value,
                                         std::size_t least,
                                         std::size_t most) const {
    const bool in_range = value.is_number_unsigned() && value.get<std::uint64_t>() >= least &&
                          value.get<std::uint64_t>() <= most;
    if (!in_range) {
      refuse(key, "a whole number of " + std::to_string(least) + " to " + std::to_string(most),
             shown(value));
    }
    return value.get<std::size_t>();
  }

  Source* source_;
  const json* object_;
  std::string prefix_;
};

// The objects that hold the text model, and the names that differ between the two shapes.
struct Layout {
  Section root;
  Section text;
  Section kda;
  std::string kda_prefix;   // of num_heads and head_dim
  std::string situ_prefix;  // of situ_beta and situ_linear_beta
  bool nested;
};

Layout find_layout(Source& source, const json& document) {
  const Section root(source, &document, "");
  const bool nested = root.find("text_config") != nullptr;
  const Section text = nested ? root.child("text_config") : root;
  if (nested || root.find("linear_attn_config") != nullptr) {
    return {root, text, text.child("linear_attn_config"), "", "activation_", nested};
  }
  return {root, text, text, "kda_", "", nested};
}

void read_sizes(const Section& text, ModelConfig& config) {
  config.hidden_size = text.size("hidden_size");
  config.num_hidden_layers = text.size("num_hidden_layers", 1, kMaxLayers);
  config.vocab_size = text.size("vocab_size");
  config.num_attention_heads = text.size("num_attention_heads");
  config.q_lora_rank = text.size("q_lora_rank");
  config.kv_lora_rank = text.size("kv_lora_rank");
  config.qk_nope_head_dim = text.size("qk_nope_head_dim");
  config.qk_rope_head_dim = text.size("qk_rope_head_dim");
  config.v_head_dim = text.size("v_head_dim");
  config.num_experts = text.size("num_experts");
  config.num_experts_per_token = text.size("num_experts_per_token");
  config.num_shared_experts = text.size("num_shared_experts");
  config.routed_expert_hidden_size = text.size("routed_expert_hidden_size");
  config.moe_intermediate_size = text.size("moe_intermediate_size");
  config.first_k_dense_replace = text.size("first_k_dense_replace", 0);
  config.intermediate_size = text.size("intermediate_size");
  config.attn_res_block_size = text.size("attn_res_block_size");
}

void read_constants(const Layout& layout, ModelConfig& config) {
  const Section& text = layout.text;
  config.rms_norm_eps = text.number("rms_norm_eps");
  if (config.rms_norm_eps < 0.0) {
    text.refuse("rms_norm_eps", "a number not below 0", shown(*text.find("rms_norm_eps")));
  }
  config.routed_scaling_factor = text.number("routed_scaling_factor");
  config.mla_use_output_gate = text.flag("mla_use_output_gate");
  config.moe_renormalize = text.flag("moe_renormalize");
  config.latent_moe_use_norm = text.flag("latent_moe_use_norm");
  config.situ_beta = text.positive_number(layout.situ_prefix + "situ_beta");
  config.situ_linear_beta = text.positive_number(layout.situ_prefix + "situ_linear_beta");
}

// `layers` as read, or 0 when it is missing itself.
void read_kda(const Layout& layout, std::size_t layers, ModelConfig& config) {
  const Section& kda = layout.kda;
  config.kda_num_heads = kda.size(layout.kda_prefix + "num_heads");
  config.kda_head_dim = kda.size(layout.kda_prefix + "head_dim");
  config.short_conv_kernel_size = kda.size("short_conv_kernel_size");
  config.gate_lower_bound = kda.number("gate_lower_bound");
  if (layers == 0) {
    if (kda.find("full_attn_layers") == nullptr) {
      kda.report_missing("full_attn_layers");
    }
    return;
  }
  config.is_mla = kda.layer_set("full_attn_layers", layers);
  if (kda.find("kda_layers") != nullptr && kda.find("full_attn_layers") != nullptr) {
    std::vector<bool> complement = kda.layer_set("kda_layers", layers);
    complement.flip();
    for (std::size_t layer = 0; layer < layers; ++layer) {
      if (complement[layer] != config.is_mla[layer]) {
        kda.refuse("kda_layers", "exactly the layers that full_attn_layers leaves out",
                   "layer " + std::to_string(layer + 1) + " in " +
                       (config.is_mla[layer] ? "both" : "neither"));
      }
    }
  }
}

void refuse_other_models(const Layout& layout, const ModelConfig& config) {
  const Section& text = layout.text;
  text.only("hidden_act", "situ");
  text.only("moe_router_activation_func", "sigmoid");
  text.only("num_expert_group", 1U);
  text.only("topk_group", 1U);
  text.only("moe_layer_freq", 1U);
  text.only("mla_use_nope", true);
  text.only("num_key_value_heads", config.num_attention_heads);
  for (const Section& section : {layout.kda, text}) {
    section.only("use_full_rank_gate", true);
  }
  for (const Section& section : {layout.root, text}) {
    section.only("tie_word_embeddings", false);
  }
}

// Checks one quantization_config block, which must name the group size in at least one place.
void check_quantization(const Section& block) {
  block.only("format", kQuantizationFormat);
  block.only("group_size", kGroupSize);
  bool sized = block.find("group_size") != nullptr;
  const Section groups = block.child("config_groups");
  if (groups.present()) {
    for (const auto& group_item : groups.object().items()) {
      const Section group = groups.child(group_item.key());
      const Section weights = group.child("weights");
      group.only("format", kQuantizationFormat);
      weights.only("group_size", kGroupSize);
      sized = sized || weights.find("group_size") != nullptr;
    }
  }
  if (!sized) {
    block.report_missing("group_size");
  }
}

void read_quantization(const Layout& layout) {
  const Section block = layout.text.child("quantization_config");
  if (block.present() || layout.nested) {
    check_quantization(block);
  }
  if (layout.nested) {
    const Section outer = layout.root.child("quantization_config");
    if (outer.present()) {
      check_quantization(outer);
    }
  }
}

// Watches the parser: a key that stands twice in one object and deep nesting are refused.
class Watcher {
 public:
  explicit Watcher(const Source& source) : source_(source) {}

  bool operator()(int depth, json::parse_event_t event, const json& parsed) {
    if (depth > kMaxDepth) {
      source_.refuse("nesting", "at most " + std::to_string(kMaxDepth) + " levels", "more");
    }
    if (event == json::parse_event_t::object_start) {
      keys_.emplace_back();
    } else if (event == json::parse_event_t::object_end) {
      keys_.pop_back();
    } else if (event == json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys_.back().insert(key).second) {
        source_.refuse(key, "a key once in its object", "it twice");
      }
    }
    return true;
  }

 private:
  const Source& source_;
  std::vector<std::unordered_set<std::string>> keys_;  // of the objects that are open
};

json parse_document(std::string_view text, const Source& source) {
  Watcher watcher(source);
  try {
    return json::parse(text, std::ref(watcher));
  } catch (const json::exception& fault) {
    throw Error(ErrorKind::kConfig, ErrorDetail{.what = "not valid JSON",
                                                .where = source.where,
                                                .expected = "a JSON object",
                                                .found = printable(fault.what(), 300)});
  }
}

}  // namespace

ModelConfig parse_config(std::string_view text, const std::string& where) {
  Source source{.where = where, .missing = {}};
  if (text.empty()) {
    source.refuse("empty file", "a JSON object", "0 bytes");
  }
  const json document = parse_document(text, source);
  if (!document.is_object()) {
    source.refuse("top level", "a JSON object", shown(document));
  }
  const Layout layout = find_layout(source, document);
  ModelConfig config;
  read_sizes(layout.text, config);
  read_constants(layout, config);
  const bool counted = layout.text.find("num_hidden_layers") != nullptr;
  read_kda(layout, counted ? config.num_hidden_layers : 0, config);
  read_quantization(layout);
  if (!source.missing.empty()) {
    std::string names;
    for (const std::string& name : source.missing) {
      names += (names.empty() ? "" : ", ") + name;
    }
    throw Error(ErrorKind::kConfig,
                ErrorDetail{.what = "missing keys",
                            .where = where,
                            .expected = names,
                            .found = "none of these " + std::to_string(source.missing.size())});
  }
  refuse_other_models(layout, config);
  check_config(config, where);
  return config;
}

ModelConfig read_config(const std::filesystem::path& path) {
  const std::string text = read_whole(posix_file_system(), path, kMaxFileBytes, ErrorKind::kConfig);
  return parse_config(text, path.string());
}

}  // namespace k3::io

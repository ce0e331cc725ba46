#include "io/config_checks.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "k3/errors.h"

namespace k3::io {
namespace {

constexpr std::size_t kGroup = 32;  // elements per MXFP4 scale

// Bytes that one kind of tensor may take over all layers. So far below 2^64 that sums of a few
// cannot wrap, and far above any model: 72 petabytes.
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 56U;

constexpr std::uint64_t kMaxExperts = std::uint64_t{1} << 20U;  // of all layers; released: 82,432

// The product of sizes, or `limit + 1` as soon as it is above `limit`.
std::uint64_t product_up_to(std::uint64_t limit, std::initializer_list<std::uint64_t> factors) {
  std::uint64_t product = 1;
  for (const std::uint64_t factor : factors) {
    if (product != 0 && factor > limit / product) {
      return limit + 1;
    }
    product *= factor;
  }
  return product;
}

class Checker {
 public:
  explicit Checker(const std::string& where) : where_(where) {}

  void require(bool holds,
               std::string_view key,
               const std::string& expected,
               const std::string& found) const {
    if (!holds) {
      throw Error(
          ErrorKind::kConfig,
          ErrorDetail{
              .what = std::string(key), .where = where_, .expected = expected, .found = found});
    }
  }

  // `factors` are the extents of the largest tensor named by `keys`, times the layers that hold it.
  void require_fits(std::string_view keys, std::initializer_list<std::uint64_t> factors) const {
    const std::uint64_t elements = product_up_to(kMaxBytes / sizeof(float), factors);
    require(elements <= kMaxBytes / sizeof(float), keys, "a product of sizes below 2^56 bytes",
            "a product that overflows");
  }

 private:
  const std::string& where_;
};

void check_sizes(const ModelConfig& c, const Checker& checker) {
  const std::uint64_t layers = c.num_hidden_layers;
  const std::uint64_t hidden = c.hidden_size;
  const std::uint64_t heads = c.num_attention_heads;
  const std::uint64_t kda_heads = c.kda_num_heads;
  const std::uint64_t kda_dim = c.kda_head_dim;
  checker.require_fits("vocab_size x hidden_size", {c.vocab_size, hidden});
  checker.require_fits("num_hidden_layers x intermediate_size x hidden_size",
                       {layers, c.intermediate_size, hidden});
  checker.require_fits("num_hidden_layers x KDA num_heads x head_dim x hidden_size",
                       {layers, kda_heads, kda_dim, hidden});
  checker.require_fits("num_hidden_layers x KDA num_heads x head_dim x head_dim",
                       {layers, kda_heads, kda_dim, kda_dim});
  checker.require_fits("num_hidden_layers x KDA num_heads x head_dim x short_conv_kernel_size",
                       {layers, kda_heads, kda_dim, c.short_conv_kernel_size});
  checker.require_fits("num_hidden_layers x q_lora_rank x hidden_size",
                       {layers, c.q_lora_rank, hidden});
  checker.require_fits(
      "num_hidden_layers x num_attention_heads x (qk_nope_head_dim + qk_rope_head_dim) x "
      "q_lora_rank",
      {layers, heads, c.qk_head_dim(), c.q_lora_rank});
  checker.require_fits("num_hidden_layers x (kv_lora_rank + qk_rope_head_dim) x hidden_size",
                       {layers, c.latent_width(), hidden});
  checker.require_fits(
      "num_hidden_layers x num_attention_heads x (qk_nope_head_dim + v_head_dim) x kv_lora_rank",
      {layers, heads, c.qk_nope_head_dim + c.v_head_dim, c.kv_lora_rank});
  checker.require_fits("num_hidden_layers x num_attention_heads x v_head_dim x hidden_size",
                       {layers, heads, c.v_head_dim, hidden});
  checker.require_fits("num_hidden_layers x num_experts x hidden_size",
                       {layers, c.num_experts, hidden});
  checker.require_fits("num_hidden_layers x routed_expert_hidden_size x hidden_size",
                       {layers, c.routed_expert_hidden_size, hidden});
  checker.require_fits(
      "num_hidden_layers x num_shared_experts x moe_intermediate_size x hidden_size",
      {layers, c.num_shared_experts, c.moe_intermediate_size, hidden});
  checker.require_fits(
      "num_hidden_layers x num_experts x moe_intermediate_size x routed_expert_hidden_size",
      {layers, c.num_experts, c.moe_intermediate_size, c.routed_expert_hidden_size});
}

void require_groups(const Checker& checker, std::string_view key, std::size_t width) {
  checker.require(width % kGroup == 0, key, "a multiple of " + std::to_string(kGroup),
                  std::to_string(width));
}

}  // namespace

void check_config(const ModelConfig& config, const std::string& where) {
  const Checker checker(where);
  const auto at_most = [](std::size_t bound, std::string_view key) {
    return "at most " + std::to_string(bound) + " (" + std::string(key) + ")";
  };
  checker.require(config.num_experts_per_token <= config.num_experts, "num_experts_per_token",
                  at_most(config.num_experts, "num_experts"),
                  std::to_string(config.num_experts_per_token));
  checker.require(config.first_k_dense_replace <= config.num_hidden_layers, "first_k_dense_replace",
                  at_most(config.num_hidden_layers, "num_hidden_layers"),
                  std::to_string(config.first_k_dense_replace));
  checker.require(
      std::find(config.is_mla.begin(), config.is_mla.end(), false) != config.is_mla.end(),
      "full_attn_layers", "at least one KDA layer left",
      "all " + std::to_string(config.num_hidden_layers) + " layers listed");
  require_groups(checker, "routed_expert_hidden_size", config.routed_expert_hidden_size);
  require_groups(checker, "moe_intermediate_size", config.moe_intermediate_size);
  const std::uint64_t experts =
      product_up_to(kMaxExperts, {config.num_hidden_layers, config.num_experts});
  checker.require(
      experts <= kMaxExperts, "num_hidden_layers x num_experts",
      "at most " + std::to_string(kMaxExperts) + " routed experts",
      std::to_string(config.num_hidden_layers) + " x " + std::to_string(config.num_experts));
  check_sizes(config, checker);
}

}  // namespace k3::io

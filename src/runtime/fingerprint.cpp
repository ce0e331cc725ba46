#include "runtime/fingerprint.h"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "model/tensor_plan.h"

namespace k3::runtime {
namespace {

// Values one after the other, so that no two sequences of them give the same bytes.
class Collector {
 public:
  void add(std::uint64_t value) { checksum_.add(std::as_bytes(std::span(&value, 1))); }

  void add(double value) { add(std::bit_cast<std::uint64_t>(value)); }

  void add(std::string_view text) {
    add(std::uint64_t{text.size()});
    checksum_.add(std::as_bytes(std::span(text)));
  }

  void add(std::span<const float> values) {
    add(std::uint64_t{values.size()});
    checksum_.add(std::as_bytes(values));
  }

  [[nodiscard]] ChecksumBytes take() { return checksum_.take(); }

 private:
  Checksum checksum_;
};

void add_config(Collector& all, const ModelConfig& c) {
  for (const std::size_t value : {c.hidden_size,
                                  c.num_hidden_layers,
                                  c.vocab_size,
                                  c.kda_num_heads,
                                  c.kda_head_dim,
                                  c.short_conv_kernel_size,
                                  c.num_attention_heads,
                                  c.q_lora_rank,
                                  c.kv_lora_rank,
                                  c.qk_nope_head_dim,
                                  c.qk_rope_head_dim,
                                  c.v_head_dim,
                                  c.num_experts,
                                  c.num_experts_per_token,
                                  c.num_shared_experts,
                                  c.routed_expert_hidden_size,
                                  c.moe_intermediate_size,
                                  c.first_k_dense_replace,
                                  c.intermediate_size,
                                  c.attn_res_block_size}) {
    all.add(std::uint64_t{value});
  }
  for (const double value : {c.rms_norm_eps, c.gate_lower_bound, c.routed_scaling_factor,
                             c.situ_beta, c.situ_linear_beta}) {
    all.add(value);
  }
  for (const bool value : {c.mla_use_output_gate, c.moe_renormalize, c.latent_moe_use_norm}) {
    all.add(std::uint64_t{value ? 1U : 0U});
  }
  for (std::size_t layer = 0; layer < c.num_hidden_layers; ++layer) {
    all.add(std::uint64_t{c.is_mla[layer] ? 1U : 0U});
  }
}

void add_tensor(Collector& all, const Checkpoint& checkpoint, const model::TensorSpec& spec) {
  const std::optional<std::uint32_t> id = checkpoint.index().find_id(spec.name);
  if (!id) {
    throw std::logic_error("fingerprint: a tensor of the plan is not bound");
  }
  const TensorExtent extent = checkpoint.index().entry(*id);
  all.add(std::string_view(spec.name));
  all.add(std::string_view(extent.dtype_text));
  all.add(std::uint64_t{extent.shape.size()});
  for (const std::uint64_t axis : extent.shape) {
    all.add(axis);
  }
  const std::string shard = checkpoint.index().shard_path(extent.shard).filename().string();
  all.add(std::string_view(shard));
  all.add(extent.offset);
}

}  // namespace

ChecksumBytes fingerprint(const ModelConfig& config,
                          const Checkpoint& checkpoint,
                          const model::ModelVectors& vectors) {
  Collector all;
  add_config(all, config);
  model::for_each_tensor(config, [&](const model::TensorSpec& spec) {
    if (spec.used) {
      add_tensor(all, checkpoint, spec);
    }
  });
  vectors.for_each([&all](std::span<const float> vector) { all.add(vector); });
  return all.take();
}

}  // namespace k3::runtime

#include "model/model_vectors.h"

#include <array>
#include <map>

#include "base/float_environment.h"
#include "kernels/elementary.h"

namespace k3::model {
namespace {

using VectorsByRole = std::map<TensorRole, Vector>;

std::size_t element_count(const TensorSpec& spec) {
  std::size_t count = 1;
  for (std::size_t axis = 0; axis < spec.rank; ++axis) {
    count *= static_cast<std::size_t>(spec.shape[axis]);
  }
  return count;
}

// Collects the vectors of one place by role.
void read_into(VectorsByRole& vectors, VectorReader& reader, const TensorSpec& spec) {
  if (spec.kind != TensorKind::kVector || !spec.used) {
    return;
  }
  Vector values(element_count(spec));
  reader.read(spec, values.span());
  vectors[spec.role] = std::move(values);
}

// norm_w * proj_w: the score of an aggregation is linear in both.
Vector fold(const Vector& norm, const Vector& projection) {
  Vector folded(norm.size());
  for (std::size_t i = 0; i < folded.size(); ++i) {
    folded.data()[i] = norm.data()[i] * projection.data()[i];
  }
  return folded;
}

// [C][1][K] as stored to [K][C].
Vector transpose_taps(const Vector& stored, std::size_t kernel) {
  const std::size_t channels = stored.size() / kernel;
  Vector taps(stored.size());
  for (std::size_t c = 0; c < channels; ++c) {
    for (std::size_t j = 0; j < kernel; ++j) {
      taps.data()[j * channels + c] = stored.data()[c * kernel + j];
    }
  }
  return taps;
}

Vector exponentials(Vector values) {
  for (float& value : values.span()) {
    value = kernels::exp_contract(value);
  }
  return values;
}

LayerVectors assemble_layer(const ModelConfig& config, std::size_t layer, VectorsByRole& v) {
  using enum TensorRole;
  LayerVectors out;
  out.attention_res = fold(v[kAttentionResNorm], v[kAttentionResProj]);
  out.input_norm = std::move(v[kInputNorm]);
  out.mlp_res = fold(v[kMlpResNorm], v[kMlpResProj]);
  out.post_norm = std::move(v[kPostAttentionNorm]);
  if (config.is_mla[layer]) {
    out.q_a_norm = std::move(v[kMlaQANorm]);
    out.kv_a_norm = std::move(v[kMlaKvANorm]);
  } else {
    out.q_conv = transpose_taps(v[kKdaQConv], config.short_conv_kernel_size);
    out.k_conv = transpose_taps(v[kKdaKConv], config.short_conv_kernel_size);
    out.v_conv = transpose_taps(v[kKdaVConv], config.short_conv_kernel_size);
    out.decay_rate = exponentials(std::move(v[kKdaALog]));
    out.dt_bias = std::move(v[kKdaDtBias]);
    out.o_norm = std::move(v[kKdaONorm]);
  }
  if (!config.is_dense(layer)) {
    out.router_bias = std::move(v[kRouterBias]);
    out.latent_norm = std::move(v[kLatentNorm]);
  }
  return out;
}

}  // namespace

void ModelVectors::for_each(const std::function<void(std::span<const float>)>& visit) const {
  for (const LayerVectors& l : layers) {
    for (const Vector* vector :
         std::array{&l.attention_res, &l.input_norm, &l.mlp_res, &l.post_norm, &l.q_conv, &l.k_conv,
                    &l.v_conv, &l.decay_rate, &l.dt_bias, &l.o_norm, &l.q_a_norm, &l.kv_a_norm,
                    &l.router_bias, &l.latent_norm}) {
      visit(vector->span());
    }
  }
  visit(output_res.span());
  visit(final_norm.span());
}

std::size_t ModelVectors::bytes() const {
  std::size_t count = 0;
  for_each([&count](std::span<const float> vector) { count += vector.size_bytes(); });
  return count;
}

std::size_t vector_bytes(const ModelConfig& config) {
  using enum TensorRole;
  std::size_t count = 0;
  const auto add = [&count](const TensorSpec& spec) {
    // A projection is folded into its norm.
    const bool folded =
        spec.role == kAttentionResProj || spec.role == kMlpResProj || spec.role == kOutputResProj;
    if (spec.kind == TensorKind::kVector && spec.used && !folded) {
      count += element_count(spec);
    }
  };
  for (std::size_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    for_each_trunk_tensor(config, layer, add);
  }
  for_each_model_tensor(config, add);
  return count * sizeof(float);
}

ModelVectors load_vectors(const ModelConfig& config, VectorReader& reader) {
  using enum TensorRole;
  const ScopedFloatEnvironment environment;
  ModelVectors vectors;
  for (std::size_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    VectorsByRole by_role;
    for_each_trunk_tensor(config, layer,
                          [&](const TensorSpec& spec) { read_into(by_role, reader, spec); });
    vectors.layers.push_back(assemble_layer(config, layer, by_role));
  }
  VectorsByRole by_role;
  for_each_model_tensor(config, [&](const TensorSpec& spec) { read_into(by_role, reader, spec); });
  vectors.output_res = fold(by_role[kOutputResNorm], by_role[kOutputResProj]);
  vectors.final_norm = std::move(by_role[kFinalNorm]);
  return vectors;
}

}  // namespace k3::model

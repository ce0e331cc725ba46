// Every tensor of a text model, declared once: name, shape, kind, whether the run uses it.
//
// The same declaration serves the checkpoint's binding, the replica tool and the tests.
// Source of names and shapes: docs/formats.md, section "Tensors".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "k3/config.h"

namespace k3::model {

// What a tensor is to the model. Names follow docs/formats.md.
enum class TensorRole : std::uint8_t {
  // model level
  kEmbedding,
  kHead,
  kFinalNorm,
  kOutputResNorm,
  kOutputResProj,
  // every layer
  kInputNorm,
  kPostAttentionNorm,
  kAttentionResNorm,
  kAttentionResProj,
  kMlpResNorm,
  kMlpResProj,
  // KDA
  kKdaQ,
  kKdaK,
  kKdaV,
  kKdaQConv,
  kKdaKConv,
  kKdaVConv,
  kKdaALog,
  kKdaDtBias,
  kKdaFA,
  kKdaFB,
  kKdaB,
  kKdaONorm,
  // MLA
  kMlaQA,
  kMlaQANorm,
  kMlaQB,
  kMlaKvA,
  kMlaKvANorm,
  kMlaKvB,
  // both attentions
  kGate,
  kOut,
  // dense MLP
  kDenseGate,
  kDenseUp,
  kDenseDown,
  // MoE
  kRouter,
  kRouterBias,
  kLatentDown,
  kLatentUp,
  kLatentNorm,
  kSharedGate,
  kSharedUp,
  kSharedDown,
  // one routed expert
  kExpertW1,
  kExpertW1Scale,
  kExpertW2,
  kExpertW2Scale,
  kExpertW3,
  kExpertW3Scale,
};

// How a tensor is stored, which decides the element types it may have.
enum class TensorKind : std::uint8_t {
  kVector,  // BF16, F32 or F16; resident, widened to float32
  kMatrix,  // BF16 or F32; an item of the weight tape
  kPacked,  // U8: two E2M1 codes a byte
  kScale,   // U8 or F8_E8M0: one E8M0 exponent per 32 elements
};

inline constexpr std::size_t kNoIndex = static_cast<std::size_t>(-1);

struct TensorSpec {
  std::string name;                         // full name in the checkpoint
  std::array<std::uint64_t, 3> shape = {};  // first `rank` entries count
  std::size_t rank = 0;
  TensorKind kind = TensorKind::kVector;
  TensorRole role = TensorRole::kEmbedding;
  std::size_t layer = kNoIndex;   // zero-based; kNoIndex at model level
  std::size_t expert = kNoIndex;  // kNoIndex unless of a routed expert
  bool used = true;               // false: an option is off, the tensor may be missing or anything
  bool longer_ok = false;  // shape[0] is a least length; only the first shape[0] values count
};

// Calls `visit` for every tensor of the model layer by layer (trunk, then experts by id), then
// those at model level. The spec lives for the call.
void for_each_tensor(const ModelConfig& config,
                     const std::function<void(const TensorSpec&)>& visit);

// The same, for the tensors at model level: embedding, output aggregator, final norm, head.
void for_each_model_tensor(const ModelConfig& config,
                           const std::function<void(const TensorSpec&)>& visit);

// The same, for one layer's tensors outside its routed experts.
void for_each_trunk_tensor(const ModelConfig& config,
                           std::size_t layer,
                           const std::function<void(const TensorSpec&)>& visit);

// The same, for the six tensors of one routed expert: w1, w1 scale, w2, w2 scale, w3, w3 scale.
void for_each_expert_tensor(const ModelConfig& config,
                            std::size_t layer,
                            std::size_t expert,
                            const std::function<void(const TensorSpec&)>& visit);

// The matrices of a pass in execution order: per layer attention then MLP, at the end the head.
// Every one is used exactly once; a kMlaKvB is one tile, held from the query to the output.
void for_each_tape_matrix(const ModelConfig& config,
                          const std::function<void(const TensorSpec&)>& visit);

}  // namespace k3::model

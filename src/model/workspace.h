// Scratch of a forward pass, for a given number of tokens: all the memory that a pass needs beside
// the growth of its sequences.
#pragma once

#include <cstddef>
#include <cstdint>

#include "k3/config.h"

#include "base/aligned_buffer.h"
#include "base/carver.h"

namespace k3::model {

// Symbols as in numerics.md: E hidden, H heads, D head width, P = H*D, L latent, I expert inner width,
// F dense inner width, N experts, k experts per token, S shared experts; T tokens of the pass.

struct KdaScratch {
  float* raw;    // [T][P] projections before their convolution, later the gate
  float* q;      // [T][H][D]
  float* k;      // [T][H][D]
  float* v;      // [T][H][D]
  float* f_a;    // [T][D]
  float* alpha;  // [T][H][D]
  float* beta;   // [T][H]
  float* out;    // [T][H][D]
};

struct MlaScratch {
  float* q_a;             // [T][q_lora]
  float* q;               // [T][heads][nope + rope]
  float* kv_a;            // [T][latent + rope]
  float* absorbed;        // [T][heads][latent + rope]
  float* context;         // [T][heads][latent]
  float* value;           // [T][heads][v]
  float* gate;            // [T][heads][v]
  float* attention;       // packed queries of latent_attention()
  float* packed_context;  // [heads] contexts packed for their products
};

struct DenseScratch {
  float* gate;  // [T][F], then the product with up
  float* up;    // [T][F]
};

struct MoeScratch {
  float* scores;            // [T][N]
  std::uint32_t* chosen;    // [T][k] expert ids in selection order
  float* weights;           // [T][k]
  std::uint32_t* first;     // [N + 1] first entry of each expert; entries are (token, choice) pairs
  std::uint32_t* token;     // [T*k] token of each entry, grouped by expert
  std::uint32_t* entry;     // [T][k] entry of each choice
  std::uint32_t* distinct;  // [N] experts that some token chose, in the order of the request
  float* latent;            // [T][L]
  float* shared_gate;       // [T][S*I]
  float* shared_up;         // [T][S*I]
  float* gathered;          // [T][L] latents of one expert's tokens
  float* gate;              // [T][I]
  float* up;                // [T][I]
  float* contribution;      // [T*k][L] output of each entry
  float* sum;               // [T][L]
  float* routed;            // [T][E]
};

class SequenceState;

// The tokens of one sequence within the batch: consecutive rows [first, first + count).
struct TokenSpan {
  SequenceState* state = nullptr;
  std::size_t first = 0;
  std::size_t count = 0;  // at least 1
};

class Workspace {
 public:
  // Throws Error(kMemory).
  Workspace(const ModelConfig& config, std::size_t tokens);

  // Bytes that a workspace for `tokens` tokens takes.
  [[nodiscard]] static std::size_t bytes(const ModelConfig& config, std::size_t tokens);

  [[nodiscard]] std::size_t capacity() const { return capacity_; }

  TokenSpan* spans = nullptr;       // [sequences] of the pass, at most T
  const float** sources = nullptr;  // [blocks + 1] sources of an aggregation
  float* residual = nullptr;        // [T][E] the running residual r
  float* snapshots = nullptr;       // [block][T][E] the stack B
  float* aggregated = nullptr;      // [T][E]
  float* normed = nullptr;          // [T][E]
  float* branch = nullptr;          // [T][E] output of attention or MLP
  float* scores = nullptr;          // [T][blocks + 1] of an aggregation
  float* packed = nullptr;          // a batch packed for its products
  KdaScratch kda = {};              // the four share memory
  MlaScratch mla = {};
  DenseScratch dense = {};
  MoeScratch moe = {};

 private:
  Workspace() = default;
  void carve(Carver& carver, const ModelConfig& config, std::size_t tokens);

  std::size_t capacity_ = 0;
  AlignedBuffer<std::byte> memory_;
};

// Snapshots that the layers push: one per block, begun or complete.
[[nodiscard]] inline std::size_t snapshot_count(const ModelConfig& config) {
  return (config.num_hidden_layers + config.attn_res_block_size - 1) / config.attn_res_block_size;
}

}  // namespace k3::model

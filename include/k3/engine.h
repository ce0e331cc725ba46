// The engine: a checkpoint opened for running, and sequences that run on it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "k3/config.h"
#include "k3/errors.h"

namespace k3 {

struct EngineOptions {
  std::filesystem::path model_dir;
  std::optional<std::filesystem::path> config_path = {};  // instead of model_dir/config.json
  std::optional<std::size_t> layers = {};  // the first N layers alone; later shards may be missing
  int threads = 0;  // 0: OMP_NUM_THREADS, else the physical cores the process may use
  // When it becomes true, loading stops, and a forward pass stops before its next layer.
  const std::atomic<bool>* stop = nullptr;
};

// The config of the options' checkpoint as it would run (see Engine::config), without opening
// anything else. Throws Error(kConfig), and Error(kUsage) for a number of layers it does not have.
[[nodiscard]] ModelConfig load_config(const EngineOptions& options);

// What opening the checkpoint found and took. Bytes are as held in memory.
struct LoadReport {
  std::size_t tensors = 0;  // in the index, used or not
  std::size_t shards = 0;
  double index_seconds = 0.0;
  double load_seconds = 0.0;
  std::uint64_t vector_bytes = 0;  // small vectors, float32
  std::uint64_t tape_bytes = 0;    // matrices and head, as stored
  std::uint64_t expert_bytes = 0;  // routed experts, as stored
};

// A sequence: recurrent states and latents of the tokens it has seen. Belongs to one engine, which
// must outlive it. Move-only.
class Session {
 public:
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session();

  // Tokens seen so far.
  [[nodiscard]] std::size_t position() const;

 private:
  friend class Engine;
  struct State;
  explicit Session(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// New tokens of one session in a forward call.
struct SessionStep {
  Session* session = nullptr;
  std::span<const std::int32_t> tokens;          // at least 1, each below V
  std::span<const std::size_t> logit_rows = {};  // ascending indices into `tokens`: wanted logits
};

// Called with the residual [token][E] that enters layer 0 (layers_done = 0) and leaves every layer.
using ResidualObserver =
    std::function<void(std::size_t layers_done, std::span<const float> residual)>;

class Engine {
 public:
  // Reads the config, the headers of all shards and every weight that the run uses. Throws Error:
  // kConfig, kUsage (layers, K3_ISA), kCheckpoint, kIo, kExpertIo, kMemory, kInterrupted.
  explicit Engine(const EngineOptions& options);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  Engine(Engine&&) = delete;
  Engine& operator=(Engine&&) = delete;
  ~Engine();

  // As it runs: num_hidden_layers is the number of layers of EngineOptions.
  [[nodiscard]] const ModelConfig& config() const;

  [[nodiscard]] const LoadReport& load_report() const;

  // Name of the instruction set whose kernels run: "scalar", "avx2", "avx512".
  [[nodiscard]] const char* isa() const;

  [[nodiscard]] int threads() const;

  // Throws Error(kMemory).
  [[nodiscard]] Session new_session();

  // Runs new tokens of several sessions together; one call at a time per engine. logits: [wanted][V], in the order of the steps
  // and of their logit_rows. Every result is the same bits as if its session ran alone, token by
  // token. Throws std::invalid_argument on an empty or repeated step, Error(kUsage) on a token id
  // not below V, Error(kNonFinite) naming the layer, Error(kInterrupted), and read errors; the
  // sessions of a call that threw cannot go on (std::logic_error). After a call with as many tokens
  // or more it allocates nothing but latents, where a session begins a block of 64 positions.
  void forward(std::span<const SessionStep> steps,
               std::span<float> logits,
               const ResidualObserver& observer = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Highest resident set size of this process so far, in bytes.
[[nodiscard]] std::uint64_t peak_resident_bytes();

}  // namespace k3

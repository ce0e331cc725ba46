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
#include <string>
#include <vector>

#include "k3/config.h"
#include "k3/errors.h"
#include "k3/memory.h"
#include "k3/next_forward.h"

namespace k3 {

namespace io {
class FileSystem;
}  // namespace io

class AtomicFile;
class SavedSession;

struct EngineOptions {
  std::filesystem::path model_dir;
  std::optional<std::filesystem::path> config_path = {};  // instead of model_dir/config.json
  std::optional<std::size_t> layers = {};  // the first N layers alone; later shards may be missing
  std::optional<std::filesystem::path> trunk_dir = {};  // a packed trunk; else the shards serve
  MemoryOptions memory = {};
  std::size_t readers =
      0;            // threads that read, for each device; 0: calibrated where much is streamed
  int threads = 0;  // 0: OMP_NUM_THREADS, else the physical cores the process may use
  // When it becomes true, loading stops, and a forward pass stops before its next layer.
  const std::atomic<bool>* stop = nullptr;
  // Told while weights are read, from the thread that opens the engine: bytes there are and in all.
  std::function<void(std::uint64_t bytes_done, std::uint64_t bytes_total)> on_load = {};
  // Serves the checkpoint and the trunk, for tests; must outlive the engine. Null: the system's.
  io::FileSystem* file_system = nullptr;
};

// The config of the options' checkpoint as it would run (see Engine::config), without opening
// anything else. Throws Error(kConfig), and Error(kUsage) for a number of layers it does not have.
[[nodiscard]] ModelConfig load_config(const EngineOptions& options);

// What opening the checkpoint found and took.
struct LoadReport {
  std::size_t tensors = 0;  // in the index, used or not
  std::size_t shards = 0;
  double index_seconds = 0.0;
  double load_seconds = 0.0;       // vectors and pinned tiles
  std::uint64_t vector_bytes = 0;  // small vectors, float32
  std::size_t readers = 0;         // threads for each device
  std::size_t request_bytes = 0;   // longer reads are shared by the readers
  double bandwidth = 0.0;          // bytes a second that the calibration measured; 0: none
};

// What was read since the engine was made, without what it read to load itself. Payload is weights;
// a window is what the system delivered, payload included.
struct RunStatistics {
  std::uint64_t tape_bytes = 0;
  std::uint64_t tape_window_bytes = 0;
  std::uint64_t expert_bytes = 0;
  std::uint64_t expert_window_bytes = 0;
  std::uint64_t embedding_bytes = 0;
  double tape_read_seconds = 0.0;  // of the wall clock, with a read of the tape under way
  double expert_read_seconds = 0.0;
  double tape_wait_seconds = 0.0;  // of the wall clock, with nothing to do but to wait
  double expert_wait_seconds = 0.0;
  std::uint64_t expert_requests = 0;  // distinct experts of every layer and pass
  std::uint64_t expert_hits = 0;      // of them, in memory when they were asked for
  std::uint64_t expert_evictions = 0;
  std::uint64_t expert_prefetches = 0;  // reads of experts that nobody had asked for
  bool direct = true;                   // every file is read past the page cache

  [[nodiscard]] std::uint64_t read_bytes() const {
    return tape_bytes + expert_bytes + embedding_bytes;
  }

  [[nodiscard]] double wait_seconds() const { return tape_wait_seconds + expert_wait_seconds; }
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

  // False after a forward pass that threw: the session cannot go on, and cannot be saved.
  [[nodiscard]] bool intact() const;

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

struct ForwardOptions {
  const ResidualObserver* observer = nullptr;  // borrowed, since a copy may allocate
  NextForward next = NextForward::kWithLogits;
};

class Engine {
 public:
  // Reads the config and the headers of all shards, plans the memory, and reads the weights that stay
  // in it. Throws Error: kConfig, kUsage (layers, K3_ISA), kUserFile (trunk), kCheckpoint, kIo,
  // kMemory, kInterrupted.
  explicit Engine(const EngineOptions& options);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  Engine(Engine&&) = delete;
  Engine& operator=(Engine&&) = delete;
  ~Engine();

  // As it runs: num_hidden_layers is the number of layers of EngineOptions.
  [[nodiscard]] const ModelConfig& config() const;

  [[nodiscard]] const LoadReport& load_report() const;

  [[nodiscard]] const MemoryPlan& memory_plan() const;

  [[nodiscard]] RunStatistics statistics() const;

  // What there is to say since the last call: files that direct I/O was refused for.
  [[nodiscard]] std::vector<std::string> take_notices();

  // Name of the instruction set whose kernels run: "scalar", "avx2", "avx512".
  [[nodiscard]] const char* isa() const;

  [[nodiscard]] int threads() const;

  // Throws Error(kMemory), also for more sessions at a time than the plan holds.
  [[nodiscard]] Session new_session();

  // Writes a session with all ids of its sequence, those that it has not seen included, and commits the
  // file. Throws Error(kIo) (the destination stays as it was), Error(kUsage) where one state serves
  // all layers; std::logic_error for a session of another engine, one that is not intact, or fewer
  // ids than it has seen.
  void save_session(const Session& session, std::span<const std::int32_t> ids, AtomicFile& file);

  // A new session that goes on where the saved one stood: bit for bit as if it had never stopped,
  // whatever budget, threads, instruction set or packed trunk either engine has. Throws what
  // new_session() does, Error(kUserFile) for a file of another model or a damaged one, Error(kMemory)
  // for more positions than the plan holds, Error(kUsage) where one state serves all layers.
  [[nodiscard]] Session load_session(const SavedSession& saved);

  // Runs new tokens of several sessions together; one call at a time per engine. logits: [wanted][V], in the order of the steps
  // and of their logit_rows. Every result is the same bits as if its session ran alone, token by
  // token. Throws std::invalid_argument on an empty or repeated step, Error(kUsage) on a token id
  // not below V, Error(kMemory) for more tokens or positions than the plan holds, Error(kNonFinite) naming the layer, Error(kInterrupted), and read errors; the
  // sessions of a call that threw cannot go on (std::logic_error). After a call with as many tokens
  // or more it allocates nothing but latents, where a session begins a block of 64 positions.
  void forward(std::span<const SessionStep> steps,
               std::span<float> logits,
               const ForwardOptions& options = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Highest resident set size of this process so far, in bytes.
[[nodiscard]] std::uint64_t peak_resident_bytes();

// Of the control group that leaves this process the least memory.
struct GroupMemory {
  std::string group;
  std::uint64_t limit = 0;
  std::optional<std::uint64_t> peak = {};  // of all its processes, page cache included
};

// Nothing when no group has a limit.
[[nodiscard]] std::optional<GroupMemory> group_memory();

}  // namespace k3

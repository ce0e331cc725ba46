#include "k3/engine.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "base/host.h"
#include "base/parallel.h"
#include "io/config_reader.h"
#include "kernels/isa.h"
#include "model/text_model.h"
#include "runtime/checkpoint.h"
#include "runtime/expert_store.h"
#include "runtime/weight_tape.h"

namespace k3 {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Refuses a checkpoint that memory cannot hold, before it is read.
void check_memory(const runtime::Checkpoint& checkpoint) {
  constexpr double kUsableShare = 0.95;
  const std::uint64_t needed = checkpoint.trunk_bytes() + checkpoint.expert_bytes();
  const auto usable =
      static_cast<std::uint64_t>(static_cast<double>(available_memory_bytes()) * kUsableShare);
  if (usable != 0 && needed > usable) {
    throw Error(ErrorKind::kMemory,
                {.what = "the weights do not fit into memory (bytes)",
                 .expected = "at most " + std::to_string(usable) + ", 95% of what is available",
                 .found = std::to_string(needed)});
  }
}

// The number asked for, else what OMP_NUM_THREADS made OpenMP's default, else the physical cores.
int choose_threads(int asked) {
  if (asked > 0) {
    return asked;
  }
  constexpr int kMostThreads = 1024;
  const int threads =
      std::getenv("OMP_NUM_THREADS") != nullptr ? thread_count() : default_threads();
  if (threads > kMostThreads) {
    throw Error(ErrorKind::kUsage, {.what = "too many threads",
                                    .where = "OMP_NUM_THREADS",
                                    .expected = "1 to " + std::to_string(kMostThreads),
                                    .found = std::to_string(threads)});
  }
  return threads;
}

class CheckpointVectors final : public model::VectorReader {
 public:
  explicit CheckpointVectors(const runtime::Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  void read(const model::TensorSpec& spec, std::span<float> out) override {
    std::ranges::copy(checkpoint_.read_vector(spec), out.begin());
  }

 private:
  const runtime::Checkpoint& checkpoint_;
};

}  // namespace

ModelConfig load_config(const EngineOptions& options) {
  ModelConfig config =
      io::read_config(options.config_path.value_or(options.model_dir / "config.json"));
  if (options.layers) {
    if (*options.layers == 0 || *options.layers > config.num_hidden_layers) {
      throw Error(ErrorKind::kUsage,
                  {.what = "no such number of layers",
                   .expected = "1 to " + std::to_string(config.num_hidden_layers),
                   .found = std::to_string(*options.layers)});
    }
    config.num_hidden_layers = *options.layers;
    config.is_mla.resize(*options.layers);
    config.first_k_dense_replace = std::min(config.first_k_dense_replace, *options.layers);
  }
  return config;
}

struct Session::State {
  explicit State(const ModelConfig& config) : sequence(config) {}

  model::SequenceState sequence;
};

Session::Session(std::unique_ptr<State> state) : state_(std::move(state)) {}

Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

std::size_t Session::position() const {
  return state_->sequence.position();
}

struct Engine::Impl {
  explicit Impl(const EngineOptions& options)
      : config(load_config(options)),
        stop(options.stop),
        isa(kernels::kernels().name),
        threads(choose_threads(options.threads)),
        checkpoint(open(options)) {
    check_memory(checkpoint);
    const Clock::time_point start = Clock::now();
    tape = std::make_unique<runtime::PinnedTape>(checkpoint, config, stop);
    experts = std::make_unique<runtime::ResidentExperts>(checkpoint, config, stop);
    CheckpointVectors reader(checkpoint);
    model = std::make_unique<model::TextModel>(config, model::load_vectors(config, reader), *tape,
                                               *experts);
    report.load_seconds = seconds_since(start);
    report.vector_bytes = model->vectors().bytes();
    report.tape_bytes = tape->bytes();
    report.expert_bytes = experts->bytes();
  }

  runtime::Checkpoint open(const EngineOptions& options) {
    const Clock::time_point start = Clock::now();
    runtime::Checkpoint opened(io::posix_file_system(), options.model_dir, config);
    report.index_seconds = seconds_since(start);
    report.tensors = opened.index().tensor_count();
    report.shards = opened.index().shard_count();
    return opened;
  }

  ModelConfig config;
  const std::atomic<bool>* stop;
  const char* isa;
  int threads;
  LoadReport report;
  runtime::Checkpoint checkpoint;
  std::unique_ptr<runtime::PinnedTape> tape;
  std::unique_ptr<runtime::ResidentExperts> experts;
  std::unique_ptr<model::TextModel> model;
  std::vector<model::SequenceInput> inputs;  // of the pass that runs
};

Engine::Engine(const EngineOptions& options) : impl_(std::make_unique<Impl>(options)) {}

Engine::~Engine() = default;

const ModelConfig& Engine::config() const {
  return impl_->config;
}

const LoadReport& Engine::load_report() const {
  return impl_->report;
}

const char* Engine::isa() const {
  return impl_->isa;
}

int Engine::threads() const {
  return impl_->threads;
}

Session Engine::new_session() {
  return Session(std::make_unique<Session::State>(impl_->config));
}

void Engine::forward(std::span<const SessionStep> steps,
                     std::span<float> logits,
                     const ResidualObserver& observer) {
  set_thread_count(impl_->threads);
  std::size_t tokens = 0;
  for (const SessionStep& step : steps) {
    tokens += step.tokens.size();
  }
  // As many sequences as these tokens can be of: the next pass of so many tokens allocates nothing.
  std::vector<model::SequenceInput>& inputs = impl_->inputs;
  inputs.reserve(std::max(tokens, steps.size()));
  inputs.clear();
  for (const SessionStep& step : steps) {
    model::SequenceState* sequence =
        step.session == nullptr ? nullptr : &step.session->state_->sequence;
    inputs.push_back({sequence, step.tokens, step.logit_rows});
  }
  impl_->model->forward(inputs, logits, {.stop = impl_->stop, .on_residual = &observer});
}

}  // namespace k3

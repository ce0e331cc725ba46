// Over 400 lines because opening a checkpoint, its sessions and a forward call share Engine::Impl.
#include "k3/engine.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "k3/session_file.h"

#include "base/checksum.h"
#include "base/host.h"
#include "base/parallel.h"
#include "base/printable.h"
#include "io/config_reader.h"
#include "kernels/isa.h"
#include "model/text_model.h"
#include "runtime/checkpoint.h"
#include "runtime/device_bandwidth.h"
#include "runtime/expert_store.h"
#include "runtime/fingerprint.h"
#include "runtime/memory_plan.h"
#include "runtime/packed_trunk.h"
#include "runtime/session_file.h"
#include "runtime/weight_files.h"
#include "runtime/weight_tape.h"

namespace k3 {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The number for the outermost level of the list that OMP_NUM_THREADS may hold. OpenMP itself would
// cut a number off at 32 bits and pass over what is none, for a default without affinity and quota.
int threads_of_environment(std::string_view text) {
  constexpr int kMostThreads = 1024;
  const std::string_view first = text.substr(0, text.find(','));
  const std::size_t begin = std::min(first.find_first_not_of(" \t"), first.size());
  const std::size_t end = first.find_last_not_of(" \t") + 1;
  int threads = 0;
  const auto result =
      std::from_chars(first.data() + begin, first.data() + std::max(begin, end), threads);
  if (result.ec != std::errc() || result.ptr != first.data() + end || threads < 1 ||
      threads > kMostThreads) {
    throw Error(ErrorKind::kUsage, {.what = "not a number of threads",
                                    .where = "OMP_NUM_THREADS",
                                    .expected = "1 to " + std::to_string(kMostThreads),
                                    .found = "\"" + printable(text) + "\""});
  }
  return threads;
}

// The number asked for, else that of OMP_NUM_THREADS, else the physical cores.
int choose_threads(int asked) {
  if (asked > 0) {
    return asked;
  }
  const char* environment = std::getenv("OMP_NUM_THREADS");
  return environment != nullptr ? threads_of_environment(environment) : default_threads();
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
  State(const ModelConfig& config, model::StateKind kind, std::size_t& live)
      : sequence(config, kind), live_sessions(live) {
    ++live_sessions;
  }

  State(const State&) = delete;
  State& operator=(const State&) = delete;
  State(State&&) = delete;
  State& operator=(State&&) = delete;

  ~State() { --live_sessions; }

  model::SequenceState sequence;
  std::size_t& live_sessions;  // of the engine
};

Session::Session(std::unique_ptr<State> state) : state_(std::move(state)) {}

Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

std::size_t Session::position() const {
  return state_->sequence.position();
}

bool Session::intact() const {
  return !state_->sequence.torn();
}

struct Engine::Impl {
  explicit Impl(const EngineOptions& options)
      : config(load_config(options)),
        file_system(options.file_system != nullptr ? *options.file_system
                                                   : io::posix_file_system()),
        stop(options.stop),
        isa(kernels::kernels().name),
        threads(choose_threads(options.threads)),
        checkpoint(open(options)),
        trunk(open_trunk(options)),
        files(file_system,
              checkpoint,
              trunk ? std::optional(trunk->data_path()) : std::nullopt,
              /*direct=*/true) {
    places.emplace(checkpoint, files, config);
    runtime::TapeLayout layout =
        runtime::tape_layout(checkpoint, trunk ? &*trunk : nullptr, files, config);
    runtime::PlannedMemory planned = make_plan(layout, options.memory);
    plan = std::move(planned.plan);
    load(std::move(layout), std::move(planned.pinned), options);
  }

  runtime::Checkpoint open(const EngineOptions& options) {
    const Clock::time_point start = Clock::now();
    runtime::Checkpoint opened(file_system, options.model_dir, config);
    report.index_seconds = seconds_since(start);
    report.tensors = opened.index().tensor_count();
    report.shards = opened.index().shard_count();
    return opened;
  }

  std::optional<runtime::PackedTrunk> open_trunk(const EngineOptions& options) {
    if (!options.trunk_dir) {
      return std::nullopt;
    }
    return std::make_optional<runtime::PackedTrunk>(file_system, *options.trunk_dir, checkpoint,
                                                    config);
  }

  // Readers that the plan reckons with: the most of a calibration, on two devices.
  static constexpr std::size_t kReaderThreads = 16;

  runtime::PlannedMemory make_plan(const runtime::TapeLayout& layout,
                                   const MemoryOptions& options) {
    const std::uint64_t resident = resident_bytes();
    const AvailableMemory free = available_memory();
    return runtime::plan_memory({.config = config,
                                 .layout = layout,
                                 .slot_bytes = places->slot_bytes(),
                                 .experts = places->count(),
                                 .program_bytes = resident,
                                 .vector_bytes = model::vector_bytes(config),
                                 .threads = static_cast<std::size_t>(threads) + kReaderThreads,
                                 // What the process has taken already is part of the plan.
                                 .available_bytes = free.with(resident),
                                 .bound_by = free.bound_by},
                                options);
  }

  void load(runtime::TapeLayout layout, std::vector<bool> pinned, const EngineOptions& options) {
    const Clock::time_point start = Clock::now();
    start_readers(layout, options);
    CheckpointVectors reader(checkpoint);
    model::ModelVectors vectors = model::load_vectors(config, reader);
    tape.emplace(
        checkpoint, files, std::move(layout),
        runtime::StreamedTape::Options{.pinned = std::move(pinned),
                                       .ring_bytes = static_cast<std::size_t>(plan.ring_bytes),
                                       .stop = stop,
                                       .on_progress = options.on_load});
    experts.emplace(*places, files, config, plan.expert_slots, stop);
    model.emplace(config, std::move(vectors), *tape, *experts);
    model->reserve(plan.chunk);
    inputs.reserve(plan.sessions);
    report.load_seconds = seconds_since(start);
    report.vector_bytes = model->vectors().bytes();
    loaded = counts();
  }

  // Starts the readers. How many and what they read at once is measured where so much is streamed that
  // it pays.
  void start_readers(const runtime::TapeLayout& layout, const EngineOptions& options) {
    constexpr std::uint64_t kWorthMeasuring = 2'000'000'000;
    runtime::ReadSettings settings;
    if (options.readers != 0) {
      settings.readers = options.readers;
    } else if (layout.payload_bytes - plan.pinned_bytes >= kWorthMeasuring) {
      constexpr std::size_t kFiles = 4;
      constexpr double kSampleSeconds = 0.15;
      const std::vector<std::filesystem::path> paths = files.largest_files(kFiles);
      const runtime::BandwidthReport measured =
          runtime::measure_bandwidth(file_system, paths,
                                     {.buffered = false,
                                      .sample_seconds = kSampleSeconds,
                                      .expert_bytes = places->payload_bytes()});
      settings.readers = measured.best.readers;
      settings.request_bytes = measured.best.request_bytes;
      report.bandwidth = measured.mix_bytes_per_second;
    }
    files.start_readers(settings);
    report.readers = settings.readers;
    report.request_bytes = settings.request_bytes;
  }

  // Reads of the tape and of experts so far.
  [[nodiscard]] std::array<runtime::ReadCounts, runtime::kReadPriorities> counts() const {
    return {files.pools().counts(runtime::ReadPriority::kExpert),
            files.pools().counts(runtime::ReadPriority::kTape)};
  }

  // Of the sessions that this engine saves; the first call computes it.
  const ChecksumBytes& session_fingerprint() {
    if (!fingerprint) {
      fingerprint = runtime::fingerprint(config, checkpoint, model->vectors());
    }
    return *fingerprint;
  }

  ModelConfig config;
  io::FileSystem& file_system;
  const std::atomic<bool>* stop;
  const char* isa;
  int threads;
  LoadReport report;
  runtime::Checkpoint checkpoint;
  std::optional<runtime::PackedTrunk> trunk;
  runtime::WeightFiles files;
  std::optional<runtime::ExpertPlaces> places;
  MemoryPlan plan;
  std::optional<runtime::StreamedTape> tape;
  std::optional<runtime::StreamedExperts> experts;
  std::optional<model::TextModel> model;
  std::array<runtime::ReadCounts, runtime::kReadPriorities> loaded = {};  // reads of the loading
  std::vector<model::SequenceInput> inputs;                               // of the pass that runs
  std::size_t live_sessions = 0;
  std::optional<ChecksumBytes> fingerprint;
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

const MemoryPlan& Engine::memory_plan() const {
  return impl_->plan;
}

RunStatistics Engine::statistics() const {
  const auto [expert, tape] = impl_->counts();
  const auto& [expert_loaded, tape_loaded] = impl_->loaded;
  const runtime::ExpertCounts slots = impl_->experts->counts();
  return {
      .tape_bytes = tape.payload_bytes - tape_loaded.payload_bytes,
      .tape_window_bytes = tape.window_bytes - tape_loaded.window_bytes,
      .expert_bytes = expert.payload_bytes - expert_loaded.payload_bytes,
      .expert_window_bytes = expert.window_bytes - expert_loaded.window_bytes,
      .embedding_bytes = impl_->tape->embedding_bytes(),
      .tape_read_seconds = tape.busy_seconds - tape_loaded.busy_seconds,
      .expert_read_seconds = expert.busy_seconds - expert_loaded.busy_seconds,
      .tape_wait_seconds = impl_->tape->wait_seconds(),
      .expert_wait_seconds = impl_->experts->wait_seconds(),
      .expert_requests = slots.requests,
      .expert_hits = slots.hits,
      .expert_evictions = slots.evictions,
      .direct = impl_->files.all_direct(),
  };
}

std::vector<std::string> Engine::take_notices() {
  return impl_->files.take_notices();
}

Session Engine::new_session() {
  if (impl_->live_sessions >= impl_->plan.sessions) {
    throw Error(ErrorKind::kMemory, {.what = "too many sessions at a time for the memory plan",
                                     .expected = std::to_string(impl_->plan.sessions),
                                     .found = std::to_string(impl_->live_sessions + 1)});
  }
  return Session(std::make_unique<Session::State>(
      impl_->config,
      impl_->plan.one_state ? model::StateKind::kOneLayer : model::StateKind::kAllLayers,
      impl_->live_sessions));
}

namespace {

void refuse_one_state(const MemoryPlan& plan) {
  if (plan.one_state) {
    throw Error(ErrorKind::kUsage,
                "a session is neither saved nor resumed where one state serves all layers "
                "(--ultra-low-memory with --full-recompute)");
  }
}

[[noreturn]] void refuse_positions(const MemoryPlan& plan, std::size_t found) {
  throw Error(ErrorKind::kMemory,
              {.what = "the sequence is longer than the memory plan allows (positions)",
               .expected = "at most " + std::to_string(plan.positions),
               .found = std::to_string(found)});
}

}  // namespace

void Engine::save_session(const Session& session,
                          std::span<const std::int32_t> ids,
                          AtomicFile& file) {
  refuse_one_state(impl_->plan);
  model::SequenceState& sequence = session.state_->sequence;
  if (&session.state_->live_sessions != &impl_->live_sessions || sequence.torn() ||
      ids.size() < sequence.position()) {
    throw std::logic_error("only an intact session of the engine is saved, with all of its ids");
  }
  runtime::write_session(impl_->config, impl_->session_fingerprint(), sequence, ids, file);
}

Session Engine::load_session(const SavedSession& saved) {
  refuse_one_state(impl_->plan);
  saved.reader_->check(impl_->config, impl_->session_fingerprint());
  if (saved.position() > impl_->plan.positions) {
    refuse_positions(impl_->plan, saved.position());
  }
  Session session = new_session();
  saved.reader_->read_states(impl_->config, session.state_->sequence);
  return session;
}

namespace {

// Refuses what the plan has no memory for.
void check_planned(const MemoryPlan& plan, std::span<const model::SequenceInput> inputs) {
  std::size_t tokens = 0;
  for (const model::SequenceInput& input : inputs) {
    tokens += input.tokens.size();
    const std::size_t position =
        (input.state == nullptr ? 0 : input.state->position()) + input.tokens.size();
    if (position > plan.positions) {
      refuse_positions(plan, position);
    }
  }
  if (tokens > plan.chunk) {
    throw Error(ErrorKind::kMemory,
                {.what = "a forward call of more tokens than the memory plan allows",
                 .expected = "at most " + std::to_string(plan.chunk),
                 .found = std::to_string(tokens)});
  }
}

}  // namespace

void Engine::forward(std::span<const SessionStep> steps,
                     std::span<float> logits,
                     const ForwardOptions& options) {
  set_thread_count(impl_->threads);
  // At most as many as the plan has sessions: it allocates nothing.
  std::vector<model::SequenceInput>& inputs = impl_->inputs;
  inputs.clear();
  for (const SessionStep& step : steps) {
    model::SequenceState* sequence =
        step.session == nullptr ? nullptr : &step.session->state_->sequence;
    inputs.push_back({sequence, step.tokens, step.logit_rows});
  }
  check_planned(impl_->plan, inputs);
  impl_->model->forward(
      inputs, logits, {.stop = impl_->stop, .on_residual = options.observer, .next = options.next});
}

}  // namespace k3

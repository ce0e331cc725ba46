#include "cli/report.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <system_error>

#include "cli/id_list.h"

namespace k3::cli {
namespace {

constexpr double kGigabyte = 1e9;

double gigabytes(std::uint64_t bytes) {
  return static_cast<double>(bytes) / kGigabyte;
}

double percent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

unsigned long long count(std::uint64_t value) {
  return value;
}

}  // namespace

void print_config(const Engine& engine) {
  const ModelConfig& config = engine.config();
  const int threads = engine.threads();
  const auto mla =
      static_cast<std::size_t>(std::count(config.is_mla.begin(), config.is_mla.end(), true));
  std::printf(
      "config: %zu layers (%zu KDA, %zu MLA), hidden %zu, vocabulary %zu, %zu experts, "
      "top %zu, %s, %d thread%s\n",
      config.num_hidden_layers, config.num_hidden_layers - mla, mla, config.hidden_size,
      config.vocab_size, config.num_experts, config.num_experts_per_token, engine.isa(), threads,
      threads == 1 ? "" : "s");
}

void print_notices(Engine& engine) {
  for (const std::string& notice : engine.take_notices()) {
    std::fprintf(stderr, "k3: note: %s\n", notice.c_str());
  }
}

void print_load(Engine& engine) {
  const LoadReport& report = engine.load_report();
  const MemoryPlan& plan = engine.memory_plan();
  std::printf("indexed %zu tensors from %zu shards in %.3f s\n", report.tensors, report.shards,
              report.index_seconds);
  std::printf("memory plan:\n");
  for (const MemoryItem& item : plan.items) {
    std::printf("  %-32s %9.3f GB\n", item.name.c_str(), gigabytes(item.bytes));
  }
  std::printf("  %-32s %9.3f GB of %.3f GB available (%s)\n", "TOTAL", gigabytes(plan.total),
              gigabytes(plan.available), plan.bound_by.c_str());
  for (const std::string& note : plan.notes) {
    std::printf("  note: %s\n", note.c_str());
  }
  std::printf("  nearest preset: %s\n",
              std::string(nearest_memory_preset(plan.available).name).c_str());
  std::printf("tape: %.3f GB, %.1f%% pinned, ring %.3f GB, %s, %zu readers of %zu KiB\n",
              gigabytes(plan.trunk_bytes), percent(plan.pinned_bytes, plan.trunk_bytes),
              gigabytes(plan.ring_bytes), engine.statistics().direct ? "direct" : "buffered",
              report.readers, report.request_bytes / 1024);
  if (report.bandwidth > 0.0) {
    std::printf("calibrated: %.3f GB/s\n", report.bandwidth / kGigabyte);
  }
  std::printf("experts: %zu slots of %.3f MB for %zu experts\n", plan.expert_slots,
              static_cast<double>(plan.slot_bytes) / 1e6, plan.experts);
  std::printf("loaded in %.3f s\n", report.load_seconds);
  print_notices(engine);
}

void print_step_header() {
  std::printf("%5s %8s %10s %9s %9s %10s\n", "STEP", "TOKEN", "SECONDS", "CACHE HIT", "READ GB",
              "TOK/S");
}

void print_step(const GenerateStep& step) {
  const double rate = step.seconds > 0.0 ? 1.0 / step.seconds : 0.0;
  std::printf("%5zu %8d %10.4f %8.1f%% %9.3f %10.2f\n", step.index + 1, step.token, step.seconds,
              percent(step.expert_hits, step.expert_requests), gigabytes(step.read_bytes), rate);
  std::fflush(stdout);
}

void print_statistics(const RunStatistics& run, double seconds) {
  std::printf("experts: %.1f%% of %llu requests resident, %llu evictions, %llu prefetched\n",
              percent(run.expert_hits, run.expert_requests), count(run.expert_requests),
              count(run.expert_evictions), count(run.expert_prefetches));
  std::printf("read: tape %.3f GB in %.3f s, experts %.3f GB in %.3f s, embedding %.6f GB\n",
              gigabytes(run.tape_bytes), run.tape_read_seconds, gigabytes(run.expert_bytes),
              run.expert_read_seconds, gigabytes(run.embedding_bytes));
  const std::uint64_t windows = run.tape_window_bytes + run.expert_window_bytes;
  std::printf("read: windows %.3f%% above payload, %s\n",
              percent(windows - std::min(windows, run.tape_bytes + run.expert_bytes),
                      run.tape_bytes + run.expert_bytes),
              run.direct ? "direct" : "buffered");
  if (seconds > 0.0) {
    const double waiting = std::min(run.wait_seconds() / seconds, 1.0);
    std::printf("waiting for the disk: %.1f%% of %.3f s (tape %.3f s, experts %.3f s), %.3f GB/s\n",
                100.0 * waiting, seconds, run.tape_wait_seconds, run.expert_wait_seconds,
                gigabytes(run.read_bytes()) / seconds);
  }
}

void print_generation(const GenerateResult& result) {
  const std::size_t count = result.generated.size();
  const double average = count == 0 ? 0.0 : result.seconds / static_cast<double>(count);
  std::printf("%zu tokens in %.3f s, %.4f s/token average%s\n", count, result.seconds, average,
              result.interrupted() ? " (interrupted)" : "");
  std::printf("generated ids: %s\n", join_ids(result.generated).c_str());
}

void print_stop(const std::string& reason) {
  std::printf("stopped by %s\n", reason.c_str());
}

void print_sampling(const Sampling& sampling) {
  std::printf("sampling: temperature %g, top-p %g, seed %llu\n", sampling.temperature,
              sampling.top_p, static_cast<unsigned long long>(sampling.seed));
}

void print_teacher_forcing(const TeacherForcing& result, double seconds) {
  const std::size_t compared = result.predictions.size() - 1;
  std::printf("teacher forcing: %zu of %zu next tokens agree (%.2f%%) in %.3f s\n", result.agreeing,
              compared,
              100.0 * static_cast<double>(result.agreeing) / static_cast<double>(compared),
              seconds);
}

void print_peak_memory() {
  std::printf("PEAK RSS for the whole run: %.3f GB\n", gigabytes(peak_resident_bytes()));
  if (const std::optional<GroupMemory> group = group_memory()) {
    std::printf("cgroup %s: limit %.3f GB", group->group.c_str(), gigabytes(group->limit));
    if (group->peak) {
      std::printf(", peak %.3f GB with its page cache", gigabytes(*group->peak));
    }
    std::printf("\n");
  }
}

void finish_standard_output() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    throw Error(ErrorKind::kIo, {.what = "cannot be written",
                                 .where = "standard output",
                                 .found = std::generic_category().message(errno)});
  }
}

}  // namespace k3::cli

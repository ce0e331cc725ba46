#include "cli/report.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <system_error>

namespace k3::cli {
namespace {

constexpr double kGigabyte = 1e9;

double gigabytes(std::uint64_t bytes) {
  return static_cast<double>(bytes) / kGigabyte;
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

void print_load(const LoadReport& report) {
  std::printf("indexed %zu tensors from %zu shards in %.3f s\n", report.tensors, report.shards,
              report.index_seconds);
  std::printf("resident: trunk %.3f GB, experts %.3f GB, vectors %.3f GB, loaded in %.3f s\n",
              gigabytes(report.tape_bytes), gigabytes(report.expert_bytes),
              gigabytes(report.vector_bytes), report.load_seconds);
}

void print_step_header() {
  std::printf("%5s %8s %10s %10s\n", "STEP", "TOKEN", "SECONDS", "TOK/S");
}

void print_step(const GenerateStep& step) {
  const double rate = step.seconds > 0.0 ? 1.0 / step.seconds : 0.0;
  std::printf("%5zu %8d %10.4f %10.2f\n", step.index + 1, step.token, step.seconds, rate);
  std::fflush(stdout);
}

void print_generation(const GenerateResult& result) {
  const std::size_t count = result.generated.size();
  const double average = count == 0 ? 0.0 : result.seconds / static_cast<double>(count);
  std::printf("%zu tokens in %.3f s, %.4f s/token average%s\n", count, result.seconds, average,
              result.interrupted ? " (interrupted)" : "");
  std::printf("generated ids: ");
  for (std::size_t i = 0; i < count; ++i) {
    std::printf("%s%d", i == 0 ? "" : ",", result.generated[i]);
  }
  std::printf("\n");
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
}

void finish_standard_output() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    throw Error(ErrorKind::kIo, {.what = "cannot be written",
                                 .where = "standard output",
                                 .found = std::generic_category().message(errno)});
  }
}

}  // namespace k3::cli

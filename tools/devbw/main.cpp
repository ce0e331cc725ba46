// k3-devbw: measures a device as the engine reads it and prints the best setting.

#include <sys/sysmacros.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "k3/errors.h"

#include "io/file.h"
#include "runtime/device_bandwidth.h"
#include "scratch_file.h"
#include "tool_main.h"

namespace {

using k3::Error;
using k3::ErrorDetail;
using k3::ErrorKind;
using k3::runtime::BandwidthOptions;
using k3::runtime::BandwidthReport;
using k3::runtime::BandwidthSample;
using k3::runtime::pattern_name;
using k3::runtime::ReadSetting;
using Paths = std::vector<std::filesystem::path>;

constexpr double kKib = 1024.0;
constexpr std::size_t kMaxReaders = 256;

struct Arguments {
  std::vector<std::string> paths;
  std::string make_file;  // directory; empty: none is made
  double size_gb = 0.0;
  double seconds = 0.25;
  std::vector<std::size_t> readers;
  std::vector<std::size_t> request_kib;
  bool grid = false;
  bool direct_only = false;
  bool buffered_only = false;
  bool json = false;
};

void declare(CLI::App& app, Arguments& arguments) {
  app.add_option("paths", arguments.paths,
                 "Model directories (their *.safetensors and trunk.bin) or files; read only");
  CLI::Option* const make =
      app.add_option("--make-file", arguments.make_file,
                     "Measure with a scratch file in this directory; it is removed afterwards");
  CLI::Option* const size =
      app.add_option("--size", arguments.size_gb, "GB (10^9 bytes) of the scratch file")
          ->check(CLI::Range(0.001, 1e6));
  make->needs(size);
  size->needs(make);
  app.add_option("--seconds", arguments.seconds, "Of each measurement [0.25]")
      ->check(CLI::Range(0.001, 3600.0));
  app.add_option("--readers", arguments.readers, "Numbers of reader threads [1,2,4,8]")
      ->delimiter(',')
      ->check(CLI::Range(std::size_t{1}, kMaxReaders));
  app.add_option("--request-kib", arguments.request_kib, "Request sizes in KiB [1024,4096,16384]")
      ->delimiter(',')
      ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 20U));
  app.add_flag("--grid", arguments.grid, "Measure every combination, not one choice at a time");
  CLI::Option* const direct =
      app.add_flag("--direct", arguments.direct_only, "Measure direct I/O alone");
  app.add_flag("--buffered", arguments.buffered_only, "Measure buffered reads alone")
      ->excludes(direct);
  app.add_flag("--json", arguments.json, "Print JSON instead of text");
}

BandwidthOptions options_of(const Arguments& arguments) {
  BandwidthOptions options;
  options.sample_seconds = arguments.seconds;
  options.whole_grid = arguments.grid;
  options.direct = !arguments.buffered_only;
  options.buffered = !arguments.direct_only;
  if (!arguments.readers.empty()) {
    options.readers = arguments.readers;
  }
  if (!arguments.request_kib.empty()) {
    options.request_bytes.clear();
    for (const std::size_t kib : arguments.request_kib) {
      options.request_bytes.push_back(kib * 1024);
    }
  }
  std::sort(options.readers.begin(), options.readers.end());
  std::sort(options.request_bytes.begin(), options.request_bytes.end());
  return options;
}

// The files to read: those named, and the weights of directories.
Paths files_of(const std::vector<std::string>& names) {
  Paths files;
  for (const std::string& name : names) {
    std::error_code error;
    if (!std::filesystem::is_directory(name, error)) {
      files.emplace_back(name);
      continue;
    }
    const std::size_t before = files.size();
    for (const auto& entry : std::filesystem::directory_iterator(name)) {
      const std::filesystem::path& path = entry.path();
      if (path.extension() == ".safetensors" || path.filename() == "trunk.bin") {
        files.push_back(path);
      }
    }
    if (files.size() == before) {
      throw Error(ErrorKind::kUsage, ErrorDetail{.what = "nothing to read",
                                                 .where = name,
                                                 .expected = "*.safetensors or trunk.bin",
                                                 .found = "no such file"});
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string mode_name(const ReadSetting& setting) {
  return setting.direct ? "direct" : "buffered";
}

void print_text(std::uint64_t device, std::size_t files, const BandwidthReport& report) {
  std::printf("device %u:%u: %zu files, windows aligned to %zu bytes\n", major(device),
              minor(device), files, report.alignment);
  if (!report.direct_refused.empty()) {
    std::printf("no direct I/O: %s\n", report.direct_refused.c_str());
  }
  std::printf(" %-8s %7s %11s  %-8s %8s\n", "PATTERN", "READERS", "REQUEST KIB", "MODE", "GB/S");
  for (const BandwidthSample& sample : report.samples) {
    std::printf(" %-8s %7zu %11.0f  %-8s %8.3f\n", pattern_name(sample.pattern).c_str(),
                sample.setting.readers, static_cast<double>(sample.setting.request_bytes) / kKib,
                mode_name(sample.setting).c_str(), sample.bytes_per_second() / 1e9);
  }
  std::printf(
      "best: %zu readers, requests of %.0f KiB, %s: tape %.3f, experts %.3f, mix %.3f GB/s\n",
      report.best.readers, static_cast<double>(report.best.request_bytes) / kKib,
      mode_name(report.best).c_str(), report.tape_bytes_per_second / 1e9,
      report.experts_bytes_per_second / 1e9, report.mix_bytes_per_second / 1e9);
}

nlohmann::json setting_json(const ReadSetting& setting) {
  return {{"readers", setting.readers},
          {"request_bytes", setting.request_bytes},
          {"direct", setting.direct}};
}

nlohmann::json report_json(std::uint64_t device, std::size_t files, const BandwidthReport& report) {
  nlohmann::json samples = nlohmann::json::array();
  for (const BandwidthSample& sample : report.samples) {
    nlohmann::json one = setting_json(sample.setting);
    one["pattern"] = pattern_name(sample.pattern);
    one["seconds"] = sample.seconds;
    one["payload_bytes"] = sample.payload_bytes;
    one["bytes_per_second"] = sample.bytes_per_second();
    samples.push_back(std::move(one));
  }
  nlohmann::json best = setting_json(report.best);
  best["tape_bytes_per_second"] = report.tape_bytes_per_second;
  best["experts_bytes_per_second"] = report.experts_bytes_per_second;
  best["mix_bytes_per_second"] = report.mix_bytes_per_second;
  return {{"device", device},   {"files", files}, {"alignment", report.alignment},
          {"samples", samples}, {"best", best},   {"direct_refused", report.direct_refused}};
}

void run(const Arguments& arguments) {
  std::optional<k3::tools::ScratchFile> scratch;
  Paths files = files_of(arguments.paths);
  if (!arguments.make_file.empty()) {
    scratch.emplace(arguments.make_file, static_cast<std::uint64_t>(arguments.size_gb * 1e9));
    files.push_back(scratch->path());
  }
  if (files.empty()) {
    throw Error(ErrorKind::kUsage, "name a model directory, files, or --make-file DIR --size GB");
  }
  std::map<std::uint64_t, Paths> devices;
  for (const std::filesystem::path& path : files) {
    const auto file = k3::io::open_file(k3::io::posix_file_system(), path, ErrorKind::kUsage);
    devices[file->device()].push_back(path);
  }
  const BandwidthOptions options = options_of(arguments);
  nlohmann::json reports = nlohmann::json::array();
  for (const auto& [device, paths] : devices) {
    const BandwidthReport report =
        k3::runtime::measure_bandwidth(k3::io::posix_file_system(), paths, options);
    if (arguments.json) {
      reports.push_back(report_json(device, paths.size(), report));
    } else {
      print_text(device, paths.size(), report);
    }
  }
  if (arguments.json) {
    const std::string text = nlohmann::json{{"devices", reports}}.dump(2);
    std::printf("%s\n", text.c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Measures the devices of a model as the engine reads them (reader threads, request size,\n"
      "direct or buffered; the tape in order, experts scattered, a mix of both) and prints the\n"
      "best setting. Takes a few seconds. Nothing is written but the file of --make-file.",
      "k3-devbw");
  Arguments arguments;
  declare(app, arguments);
  return k3::tools::tool_main(app, argc, argv, [&] { run(arguments); });
}

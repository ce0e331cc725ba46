// What a device delivers when it is read as the engine reads it, and the setting that gets the most.
//
// The engine calibrates itself with this, and k3-devbw prints it: window reads of a reader pool, the
// tape in order, experts scattered over the files and ahead of the tape.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "io/file.h"

namespace k3::runtime {

enum class ReadPattern : std::uint8_t {
  kTape,     // requests one after the other through the files
  kExperts,  // experts at random places, each cut into requests
  kMix,      // both: of the bytes of a token of the released model about a fifth are experts
};

// "tape", "experts", "mix".
[[nodiscard]] std::string pattern_name(ReadPattern pattern);

struct ReadSetting {
  std::size_t readers = 1;
  std::size_t request_bytes = 0;
  bool direct = true;
};

struct BandwidthSample {
  ReadSetting setting;
  ReadPattern pattern = ReadPattern::kMix;
  double seconds = 0.0;
  std::uint64_t payload_bytes = 0;  // read meanwhile; of the requests under way at the end one half

  [[nodiscard]] double bytes_per_second() const {
    return seconds > 0.0 ? static_cast<double>(payload_bytes) / seconds : 0.0;
  }
};

struct BandwidthOptions {
  std::vector<std::size_t> readers = {1, 2, 4, 8};  // rising, as the next
  std::vector<std::size_t> request_bytes = {std::size_t{1} << 20U, std::size_t{4} << 20U,
                                            std::size_t{16} << 20U};
  bool direct = true;            // measure direct I/O
  bool buffered = true;          // measure the page cache's way, with a cache that is dropped
  bool whole_grid = false;       // every combination instead of one choice after the other
  double sample_seconds = 0.25;  // of each sample
  std::size_t expert_bytes = 17'547'264;  // of the released model
  std::uint64_t seed = 1;                 // of the places of the experts
};

struct BandwidthReport {
  std::vector<BandwidthSample> samples;  // in the order of measuring
  ReadSetting best;
  double tape_bytes_per_second = 0.0;  // of the best setting
  double experts_bytes_per_second = 0.0;
  double mix_bytes_per_second = 0.0;
  std::size_t alignment = 0;
  std::string direct_refused;  // why direct I/O was not measured although asked for; else empty
};

// Measures with `files`, which should lie on one device and be larger than what the device caches.
// Among the samples of the mix the fastest setting wins; of those within 3% of it the one with the
// fewest readers, then the smallest requests, direct before buffered. So it is never worse than one
// reader. Takes about samples x sample_seconds. Throws Error(kUsage) for no file or empty ones,
// Error(kIo) when a read fails.
[[nodiscard]] BandwidthReport measure_bandwidth(io::FileSystem& file_system,
                                                std::span<const std::filesystem::path> files,
                                                const BandwidthOptions& options = {});

// The setting that measure_bandwidth() chooses among samples; at least one.
[[nodiscard]] ReadSetting best_setting(std::span<const BandwidthSample> samples);

}  // namespace k3::runtime

// trunk.json, the manifest of a packed trunk (docs/formats.md): which bytes of trunk.bin are which
// tensor of which layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "io/file.h"

namespace k3::io {

inline constexpr const char* kTrunkDataName = "trunk.bin";
inline constexpr const char* kTrunkManifestName = "trunk.json";

// Runs begin on multiples of it, unless a manifest names a larger power of two.
inline constexpr std::uint64_t kTrunkAlignment = 4096;

struct TrunkTensor {
  std::uint64_t offset = 0;  // within the run of its layer
  std::uint64_t nbytes = 0;
  std::string dtype;  // as written
  std::vector<std::uint64_t> shape;
};

// The bytes of one layer.
struct TrunkRun {
  std::size_t layer = 0;
  std::uint64_t offset = 0;  // in trunk.bin, a multiple of the manifest's alignment
  std::uint64_t nbytes = 0;  // padding included
  std::string xxh128;        // XXH128 of the run, 32 hexadecimal digits; empty: not recorded
  std::map<std::string, TrunkTensor, std::less<>> tensors;  // by full name
};

struct TrunkManifest {
  std::size_t layer_count = 0;  // that were packed; a run is of a layer below
  std::uint64_t alignment = kTrunkAlignment;
  std::string source_xxh128;  // k3-pack's fingerprint of the shards, 32 digits; empty: none
  std::map<std::size_t, TrunkRun> runs;  // by layer; a layer may be absent

  // Where the last run ends: the least size of trunk.bin.
  [[nodiscard]] std::uint64_t data_bytes() const;
};

// Reads a manifest of at most 256 MiB (one of the released model has about 0.4 MB). Throws
// Error(kUserFile) naming file, key, expected and found for whatever is not a sound manifest: no
// JSON object, a key twice in an object, a required key missing or of another type, a number that
// is no whole number of 0 to 2^64 - 1, an alignment that is no power of two from 4096 on, a run that
// does not begin on it, a layer twice or beyond n_layers, runs that overlap or end beyond 2^63, a
// tensor outside its run or over another one, bytes that disagree with shape and dtype. Keys that
// the format does not name are skipped.
[[nodiscard]] TrunkManifest read_trunk_manifest(FileSystem& file_system,
                                                const std::filesystem::path& path);

// The same for its text; `where` is the file's name in messages.
[[nodiscard]] TrunkManifest parse_trunk_manifest(std::string_view text, const std::string& where);

}  // namespace k3::io

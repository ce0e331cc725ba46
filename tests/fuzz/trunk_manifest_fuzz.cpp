// Any bytes as trunk.json: the reader refuses them with Error(kUserFile) or gives runs that are
// aligned and apart, and tensors that lie apart within their runs.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "k3/errors.h"

#include "io/trunk_manifest.h"

namespace {

using Ranges = std::vector<std::pair<std::uint64_t, std::uint64_t>>;  // begin, end

void require(bool holds) {
  if (!holds) {
    std::abort();  // libFuzzer reports the input
  }
}

void require_apart(Ranges ranges) {
  std::sort(ranges.begin(), ranges.end());
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    require(ranges[i - 1].second <= ranges[i].first);
  }
}

// Appends [offset, offset + bytes) unless it is empty; it lies below `limit`.
void add(Ranges& ranges, std::uint64_t offset, std::uint64_t bytes, std::uint64_t limit) {
  require(offset <= limit && bytes <= limit - offset);
  if (bytes > 0) {
    ranges.emplace_back(offset, offset + bytes);
  }
}

void check(const k3::io::TrunkManifest& manifest) {
  require(manifest.layer_count > 0 && manifest.alignment >= 4096);
  Ranges runs;
  for (const auto& [layer, run] : manifest.runs) {
    require(layer == run.layer && layer < manifest.layer_count);
    require(run.offset % manifest.alignment == 0);
    add(runs, run.offset, run.nbytes, manifest.data_bytes());
    Ranges tensors;
    for (const auto& [name, tensor] : run.tensors) {
      add(tensors, tensor.offset, tensor.nbytes, run.nbytes);
    }
    require_apart(tensors);
  }
  require_apart(runs);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    check(k3::io::parse_trunk_manifest({reinterpret_cast<const char*>(data), size}, "fuzz.json"));
  } catch (const k3::Error& error) {
    require(error.kind() == k3::ErrorKind::kUserFile);
  }
  return 0;
}

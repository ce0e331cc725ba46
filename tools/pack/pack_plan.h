// What goes where in a packed trunk, before a byte is copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "io/checkpoint_index.h"
#include "io/trunk_manifest.h"

namespace k3::tools {

// Consecutive bytes of one shard that stay together.
struct Piece {
  std::uint32_t shard = 0;
  std::uint64_t source = 0;  // in the shard's file
  std::uint64_t offset = 0;  // in the run
  std::uint64_t bytes = 0;
};

struct PlannedRun {
  io::TrunkRun run;
  std::vector<Piece> pieces;  // by offset, apart; what they do not cover is padding
};

struct PackPlan {
  std::uint64_t bytes = 0;       // of trunk.bin
  std::size_t tensors = 0;       // of all runs
  std::vector<PlannedRun> runs;  // [layer]
  std::string fingerprint;  // of the plan, and of size and time of change of the shards it reads
};

// The tensors of the first `layers` layers outside the routed experts, each layer's in the order in
// which they lie in the shards, without what lies between them. A layer that is one run in its
// shard is the same run here.
[[nodiscard]] PackPlan plan_trunk(const io::CheckpointIndex& index, std::size_t layers);

// Where the tensors of an existing run lie in the shards; those that the shards do not hold in the
// same size are left out.
[[nodiscard]] std::vector<Piece> pieces_of(const io::CheckpointIndex& index,
                                           const io::TrunkRun& run);

// Identifies a plan and the shards that it reads, as they are now. Throws Error(kIo) for a shard that
// is gone.
[[nodiscard]] std::string fingerprint_of(const io::CheckpointIndex& index,
                                         const std::vector<PlannedRun>& runs);

// trunk.json of a plan whose runs have their checksums.
[[nodiscard]] std::string manifest_text(const io::CheckpointIndex& index, const PackPlan& plan);

}  // namespace k3::tools

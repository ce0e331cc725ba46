#include "packer.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "k3/errors.h"

#include "base/checksum.h"
#include "base/printable.h"
#include "free_space.h"
#include "io/trunk_manifest.h"
#include "pack_plan.h"
#include "runtime/packed_trunk.h"
#include "trunk_store.h"

namespace k3::tools {
namespace {

using Checksums = std::map<std::size_t, std::string>;  // by layer
using Runs = std::vector<const PlannedRun*>;
using Side = BlockReader::Side;

std::uint64_t bytes_of(const Runs& runs) {
  std::uint64_t bytes = 0;
  for (const PlannedRun* const planned : runs) {
    bytes += planned->run.nbytes;
  }
  return bytes;
}

void stop_if_asked(const PackOptions& options) {
  if (options.stop != nullptr && options.stop->load()) {
    throw Error(ErrorKind::kInterrupted, "interrupted; the same command goes on from here");
  }
}

void say_notices(BlockReader& reader, Progress& progress) {
  for (const std::string& notice : reader.take_notices()) {
    progress.say(notice);
  }
}

// One pack: plan, directory and reader.
class Packer {
 public:
  Packer(io::FileSystem& file_system,
         const runtime::Checkpoint& checkpoint,
         const std::filesystem::path& directory,
         const ModelConfig& config,
         const PackOptions& options,
         Progress& progress)
      : file_system_(file_system),
        checkpoint_(checkpoint),
        directory_(directory),
        config_(config),
        options_(options),
        progress_(progress),
        plan_(plan_trunk(checkpoint.index(), config.num_hidden_layers)),
        reader_(file_system, checkpoint.index(), options.reading) {}

  PackFacts pack() {
    PackFacts facts{.layers = plan_.runs.size(), .tensors = plan_.tensors, .bytes = plan_.bytes};
    if (!std::filesystem::exists(directory_)) {
      require_space(0);  // before the directory is made
    }
    TrunkStore store(directory_);
    if (is_packed_already(store)) {
      store.remove_leftovers();
      facts.already_packed = true;
      return facts;
    }
    const Checksums kept = verified(store.partial_path(), store.find_partial(plan_.fingerprint));
    facts.kept_layers = kept.size();
    require_space(store.occupied());
    store.begin(plan_.fingerprint, kept, plan_.bytes);
    facts.copied_bytes = copy(store, kept);
    facts.direct_writes = store.data().direct();
    read_back(store);
    if (fingerprint_of(checkpoint_.index(), plan_.runs) != plan_.fingerprint) {
      throw Error(ErrorKind::kIo, checkpoint_.index().directory().string() +
                                      ": the shards were changed while they were packed");
    }
    store.commit(manifest_text(checkpoint_.index(), plan_));
    say_notices(reader_, progress_);
    return facts;
  }

 private:
  // Throws when another trunk is there that nobody allowed to replace.
  [[nodiscard]] bool is_packed_already(const TrunkStore& store) const {
    const bool manifest = store.has_manifest();
    if (options_.force || (!manifest && !store.has_foreign_data(plan_.fingerprint))) {
      return false;
    }
    std::string reason = "trunk.bin without trunk.json";
    if (manifest) {
      try {
        const runtime::PackedTrunk fits(file_system_, directory_, checkpoint_, config_);
        if (io::read_trunk_manifest(file_system_, directory_ / io::kTrunkManifestName)
                .source_xxh128 == plan_.fingerprint) {
          return true;
        }
        reason = "a trunk of other layers, or of shards that were changed since";
      } catch (const Error& error) {
        reason = error.what();
      }
    }
    throw Error(ErrorKind::kUserFile,
                ErrorDetail{.what = "holds another trunk, which --force replaces",
                            .where = directory_.string(),
                            .expected = "no trunk, or one of these shards and layers",
                            .found = reason});
  }

  void require_space(std::uint64_t occupied) const {
    std::filesystem::path place = std::filesystem::absolute(directory_);
    while (!std::filesystem::exists(place) && place.has_parent_path()) {
      place = place.parent_path();
    }
    if (occupied < plan_.bytes) {
      require_free_space(place, plan_.bytes - occupied, "the packed trunk");
    }
  }

  // Those of the noted runs that the file really holds.
  [[nodiscard]] Checksums verified(const std::filesystem::path& path, Checksums noted) {
    std::error_code error;
    const std::uint64_t size = std::filesystem::file_size(path, error);
    Runs runs;
    for (const PlannedRun& planned : plan_.runs) {
      if (!error && noted.contains(planned.run.layer) &&
          planned.run.offset + planned.run.nbytes <= size) {
        runs.push_back(&planned);
      }
    }
    Checksums kept;
    if (!runs.empty()) {
      progress_.begin("verifying finished layers", bytes_of(runs), runs.size());
      for (auto& [layer, checksum] : stored_checksums(runs, path)) {
        if (checksum == noted.at(layer)) {
          kept.emplace(layer, std::move(checksum));
        }
      }
    }
    return kept;
  }

  [[nodiscard]] Checksums stored_checksums(const Runs& runs, const std::filesystem::path& path) {
    Checksums checksums;
    Checksum checksum;
    reader_.read(runs, Side::kTrunk, path, [&](const Block& block) {
      stop_if_asked(options_);
      checksum.add(block.from_trunk);
      progress_.advance(block.bytes());
      if (block.last()) {
        checksums.emplace(block.planned->run.layer, checksum_text(checksum.take()));
        progress_.layer_done();
      }
    });
    return checksums;
  }

  // Copies the runs that are not among `kept`; the plan then has every checksum.
  std::uint64_t copy(TrunkStore& store, const Checksums& kept) {
    Runs runs;
    for (PlannedRun& planned : plan_.runs) {
      const auto found = kept.find(planned.run.layer);
      if (found != kept.end()) {
        planned.run.xxh128 = found->second;
      } else {
        runs.push_back(&planned);
      }
    }
    progress_.begin("packing", bytes_of(runs), runs.size());
    Checksum checksum;
    reader_.read(runs, Side::kShards, {}, [&](const Block& block) {
      stop_if_asked(options_);
      const io::TrunkRun& run = block.planned->run;
      checksum.add(block.from_shards);
      store.data().write(run.offset + block.begin, block.from_shards);
      progress_.advance(block.bytes());
      if (block.last()) {
        std::string& noted = plan_.runs[run.layer].run.xxh128;
        noted = checksum_text(checksum.take());
        store.note(run.layer, noted);
        progress_.layer_done();
      }
    });
    return bytes_of(runs);
  }

  void read_back(TrunkStore& store) {
    if (!options_.read_back) {
      return;
    }
    store.data().sync();
    Runs runs;
    for (const PlannedRun& planned : plan_.runs) {
      runs.push_back(&planned);
    }
    progress_.begin("reading back", bytes_of(runs), runs.size());
    for (const auto& [layer, checksum] : stored_checksums(runs, store.partial_path())) {
      if (checksum != plan_.runs[layer].run.xxh128) {
        throw Error(ErrorKind::kIo,
                    ErrorDetail{.what = "the device returned other bytes for layer " +
                                        std::to_string(layer),
                                .where = store.partial_path().string(),
                                .expected = "XXH128 " + plan_.runs[layer].run.xxh128,
                                .found = checksum});
      }
    }
  }

  io::FileSystem& file_system_;
  const runtime::Checkpoint& checkpoint_;
  std::filesystem::path directory_;
  const ModelConfig& config_;
  const PackOptions& options_;
  Progress& progress_;
  PackPlan plan_;
  BlockReader reader_;
};

// The tensor that holds a byte of a run; empty for padding.
std::string place_in(const io::TrunkRun& run, std::uint64_t offset) {
  for (const auto& [name, tensor] : run.tensors) {
    if (offset >= tensor.offset && offset - tensor.offset < tensor.nbytes) {
      return printable(name) + ", byte " + std::to_string(offset - tensor.offset);
    }
  }
  return "layer " + std::to_string(run.layer) + ", byte " + std::to_string(offset) + " of its run";
}

// Throws for the first byte of the block that is not what the shards hold.
void compare(const Block& block, const std::filesystem::path& path) {
  for (const Piece& piece : block.planned->pieces) {
    const std::uint64_t from = std::max(piece.offset, block.begin);
    const std::uint64_t to = std::min(piece.offset + piece.bytes, block.begin + block.bytes());
    if (from >= to) {
      continue;
    }
    const std::size_t first = from - block.begin;
    const std::span<const std::byte> wanted = block.from_shards.subspan(first, to - from);
    const std::span<const std::byte> found = block.from_trunk.subspan(first, to - from);
    const auto [difference, other] = std::ranges::mismatch(wanted, found);
    if (difference != wanted.end()) {
      const std::uint64_t at = from + static_cast<std::uint64_t>(difference - wanted.begin());
      throw Error(
          ErrorKind::kIo,
          ErrorDetail{.what = "differs from the shards at " + place_in(block.planned->run, at),
                      .where = path.string(),
                      .expected = std::to_string(std::to_integer<int>(*difference)),
                      .found = std::to_string(std::to_integer<int>(*other))});
    }
  }
}

}  // namespace

PackFacts pack(io::FileSystem& file_system,
               const runtime::Checkpoint& checkpoint,
               const std::filesystem::path& directory,
               const ModelConfig& config,
               const PackOptions& options,
               Progress& progress) {
  return Packer(file_system, checkpoint, directory, config, options, progress).pack();
}

PackFacts check(io::FileSystem& file_system,
                const runtime::Checkpoint& checkpoint,
                const std::filesystem::path& directory,
                const ModelConfig& config,
                const PackOptions& options,
                Progress& progress) {
  const runtime::PackedTrunk trunk(file_system, directory, checkpoint, config);
  const io::TrunkManifest manifest =
      io::read_trunk_manifest(file_system, directory / io::kTrunkManifestName);
  std::vector<PlannedRun> planned;
  PackFacts facts{.layers = config.num_hidden_layers};
  for (std::size_t layer = 0; layer < facts.layers; ++layer) {
    const io::TrunkRun& run = manifest.runs.at(layer);
    planned.push_back({run, pieces_of(checkpoint.index(), run)});
    facts.tensors += run.tensors.size();
  }
  Runs runs;
  for (const PlannedRun& one : planned) {
    runs.push_back(&one);
  }
  facts.bytes = bytes_of(runs);
  progress.begin("checking", facts.bytes, runs.size());
  BlockReader reader(file_system, checkpoint.index(), options.reading);
  Checksum checksum;
  reader.read(runs, Side::kBoth, trunk.data_path(), [&](const Block& block) {
    stop_if_asked(options);
    compare(block, trunk.data_path());
    checksum.add(block.from_trunk);
    progress.advance(block.bytes());
    if (block.last()) {
      const std::string found = checksum_text(checksum.take());
      const io::TrunkRun& run = block.planned->run;
      if (!run.xxh128.empty() && run.xxh128 != found) {
        throw Error(ErrorKind::kIo,
                    ErrorDetail{.what = "checksum of layer " + std::to_string(run.layer),
                                .where = trunk.data_path().string(),
                                .expected = run.xxh128,
                                .found = found});
      }
      progress.layer_done();
    }
  });
  say_notices(reader, progress);
  return facts;
}

}  // namespace k3::tools

// Packs the trunk of a checkpoint into one file, and compares a packed trunk with the shards.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>

#include "k3/config.h"

#include "block_reader.h"
#include "io/file.h"
#include "progress.h"
#include "runtime/checkpoint.h"

namespace k3::tools {

struct PackOptions {
  BlockReaderOptions reading;
  bool force = false;                       // replace a trunk that is there
  bool read_back = false;                   // read every run again before the trunk is accepted
  const std::atomic<bool>* stop = nullptr;  // set: Error(kInterrupted) at the next block
};

struct PackFacts {
  std::size_t layers = 0;
  std::size_t tensors = 0;
  std::uint64_t bytes = 0;         // of trunk.bin, or compared
  std::uint64_t copied_bytes = 0;  // in this run
  std::size_t kept_layers = 0;     // of an interrupted run, verified by their checksums
  bool already_packed = false;     // a trunk of the same shards was there; nothing was done
  bool direct_writes = false;
};

// Packs the layers of `config`. What is whole stays: see TrunkStore. Throws k3::Error: kUserFile for
// a directory that holds another trunk (without `force`) or cannot be used, kUsage for a disk that
// is too full, kIo when a read or write fails or the shards change meanwhile, kInterrupted. After
// the last two a second call goes on where this one stopped.
PackFacts pack(io::FileSystem& file_system,
               const runtime::Checkpoint& checkpoint,
               const std::filesystem::path& directory,
               const ModelConfig& config,
               const PackOptions& options,
               Progress& progress);

// Compares every tensor of the packed trunk's layers, as far as `config` has them, with the shards,
// byte by byte, and the runs with their checksums, where there are any. Throws k3::Error: kUserFile
// for a trunk that does not fit the checkpoint, kIo for the first difference or a failing read,
// kInterrupted.
PackFacts check(io::FileSystem& file_system,
                const runtime::Checkpoint& checkpoint,
                const std::filesystem::path& directory,
                const ModelConfig& config,
                const PackOptions& options,
                Progress& progress);

}  // namespace k3::tools

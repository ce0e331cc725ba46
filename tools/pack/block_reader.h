// Reads runs block by block, from the shards and from a packed trunk, ahead of who uses the blocks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/window_buffer.h"
#include "io/checkpoint_index.h"
#include "io/file.h"
#include "io/window_file.h"
#include "pack_plan.h"

namespace k3::tools {

// What is done with the runs.
struct BlockReaderOptions {
  std::size_t readers = 4;                          // threads
  std::size_t block_bytes = std::size_t{8} << 20U;  // a multiple of io::kTrunkAlignment
};

// A part of one run. Spans are empty when the side is not read.
struct Block {
  const PlannedRun* planned = nullptr;
  std::uint64_t begin = 0;           // in the run
  std::span<std::byte> from_shards;  // 0 where no piece lies; aligned for direct I/O
  std::span<const std::byte> from_trunk;

  [[nodiscard]] std::uint64_t bytes() const {
    return std::max(from_shards.size(), from_trunk.size());
  }

  // The run ends with this block.
  [[nodiscard]] bool last() const { return begin + bytes() == planned->run.nbytes; }
};

class BlockReader {
 public:
  // `index` and `file_system` outlive the reader.
  BlockReader(io::FileSystem& file_system,
              const io::CheckpointIndex& index,
              const BlockReaderOptions& options);
  ~BlockReader();
  BlockReader(const BlockReader&) = delete;
  BlockReader& operator=(const BlockReader&) = delete;
  BlockReader(BlockReader&&) = delete;
  BlockReader& operator=(BlockReader&&) = delete;

  enum class Side {
    kShards,
    kTrunk,
    kBoth
  };

  // Hands every block of the runs to `use`, in order, on this thread, while other threads read
  // ahead; `trunk` is the file that holds the runs (not used for kShards). Throws Error(kIo) when a
  // read fails, and what `use` throws; then the reads under way are over.
  void read(const std::vector<const PlannedRun*>& runs,
            Side side,
            const std::filesystem::path& trunk,
            const std::function<void(const Block&)>& use);

  // What to tell the user about files that refuse direct I/O, each once.
  [[nodiscard]] std::vector<std::string> take_notices() { return std::exchange(notices_, {}); }

 private:
  struct Slot;
  class Pipeline;

  io::WindowFile& shard(std::uint32_t number);
  void fill(Slot& slot, Side side, io::WindowFile* trunk);
  void fill_from_shards(Slot& slot);
  void forget(io::WindowFile& file);

  io::FileSystem& file_system_;
  const io::CheckpointIndex& index_;
  BlockReaderOptions options_;
  std::map<std::uint32_t, std::unique_ptr<io::WindowFile>>
      shards_;  // opened before the threads run
  std::vector<std::string> notices_;
};

}  // namespace k3::tools

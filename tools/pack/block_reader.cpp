#include "block_reader.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "k3/errors.h"

namespace k3::tools {
namespace {

// Output is written from these buffers: aligned for every direct I/O there is.
constexpr std::size_t kBufferAlignment = std::size_t{64} << 10U;

}  // namespace

// A block and the memory that it is read into.
struct BlockReader::Slot {
  explicit Slot(std::size_t block_bytes)
      : shard_bytes(block_bytes, kBufferAlignment),
        trunk_bytes(block_bytes + 2 * kBufferAlignment, kBufferAlignment),
        window(block_bytes + 2 * kBufferAlignment, kBufferAlignment) {}

  WindowBuffer shard_bytes;
  WindowBuffer trunk_bytes;
  WindowBuffer window;
  const PlannedRun* planned = nullptr;
  std::uint64_t begin = 0;
  std::size_t bytes = 0;
  Block block;
  std::exception_ptr error;
  bool ready = false;
};

// Blocks in order through a ring of slots: readers fill them, the caller uses them.
// Invariant: used_ <= taken_ <= used_ + slots, and slot i % slots belongs to block i of that range.
class BlockReader::Pipeline {
 public:
  struct Part {
    const PlannedRun* planned;
    std::uint64_t begin;
    std::size_t bytes;
  };

  Pipeline(std::vector<Part> parts, std::size_t readers, std::size_t block_bytes)
      : parts_(std::move(parts)), readers_(readers) {
    for (std::size_t i = 0; i < std::min(2 * readers, parts_.size()); ++i) {
      slots_.push_back(std::make_unique<Slot>(block_bytes));
    }
  }

  void run(const std::function<void(Slot&)>& fill, const std::function<void(const Block&)>& use) {
    std::vector<std::thread> threads;
    std::exception_ptr fault;
    try {
      for (std::size_t i = 0; i < std::min(readers_, slots_.size()); ++i) {
        threads.emplace_back([this, &fill] { fill_slots(fill); });
      }
      use_slots(use);
    } catch (...) {
      fault = std::current_exception();
    }
    stop();
    for (std::thread& thread : threads) {
      thread.join();
    }
    if (fault != nullptr) {
      std::rethrow_exception(fault);
    }
  }

 private:
  void fill_slots(const std::function<void(Slot&)>& fill) noexcept {
    while (Slot* const slot = take()) {
      try {
        fill(*slot);
      } catch (...) {
        slot->error = std::current_exception();
      }
      const std::lock_guard lock(mutex_);
      slot->ready = true;
      changed_.notify_all();
    }
  }

  // The slot of the next block; null when there is nothing left to read.
  Slot* take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] {
      return stopped_ || taken_ == parts_.size() || taken_ < used_ + slots_.size();
    });
    if (stopped_ || taken_ == parts_.size()) {
      return nullptr;
    }
    Slot& slot = *slots_[taken_ % slots_.size()];
    const Part& part = parts_[taken_++];
    slot.planned = part.planned;
    slot.begin = part.begin;
    slot.bytes = part.bytes;
    slot.error = nullptr;
    return &slot;
  }

  void use_slots(const std::function<void(const Block&)>& use) {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      Slot& slot = *slots_[i % slots_.size()];
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&slot] { return slot.ready; });
      }
      if (slot.error != nullptr) {
        std::rethrow_exception(slot.error);
      }
      use(slot.block);
      const std::lock_guard lock(mutex_);
      slot.ready = false;
      ++used_;
      changed_.notify_all();
    }
  }

  void stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }

  std::vector<Part> parts_;
  std::size_t readers_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::mutex mutex_;  // guards what follows, and Slot::ready
  std::condition_variable changed_;
  std::size_t taken_ = 0;  // blocks that a reader has begun
  std::size_t used_ = 0;
  bool stopped_ = false;
};

BlockReader::BlockReader(io::FileSystem& file_system,
                         const io::CheckpointIndex& index,
                         const BlockReaderOptions& options)
    : file_system_(file_system), index_(index), options_(options) {}

BlockReader::~BlockReader() = default;

io::WindowFile& BlockReader::shard(std::uint32_t number) {
  std::unique_ptr<io::WindowFile>& file = shards_[number];
  if (file == nullptr) {
    file = std::make_unique<io::WindowFile>(file_system_, index_.shard_path(number));
  }
  return *file;
}

void BlockReader::read(const std::vector<const PlannedRun*>& runs,
                       Side side,
                       const std::filesystem::path& trunk,
                       const std::function<void(const Block&)>& use) {
  std::vector<Pipeline::Part> parts;
  for (const PlannedRun* const planned : runs) {
    for (std::uint64_t begin = 0; begin < planned->run.nbytes; begin += options_.block_bytes) {
      const std::uint64_t left = planned->run.nbytes - begin;
      parts.push_back({planned, begin, std::min<std::size_t>(left, options_.block_bytes)});
    }
    for (const Piece& piece : planned->pieces) {
      if (side != Side::kTrunk) {
        static_cast<void>(shard(piece.shard));
      }
    }
  }
  std::optional<io::WindowFile> stored;
  if (side != Side::kShards) {
    stored.emplace(file_system_, trunk);
  }
  io::WindowFile* const stored_file = stored.has_value() ? &*stored : nullptr;
  Pipeline pipeline(std::move(parts), options_.readers, options_.block_bytes);
  pipeline.run([&](Slot& slot) { fill(slot, side, stored_file); }, use);
  for (const auto& [number, file] : shards_) {
    forget(*file);
  }
  if (stored.has_value()) {
    forget(*stored);
  }
}

// What was read through the page cache is of no use to anybody.
void BlockReader::forget(io::WindowFile& file) {
  if (!file.direct()) {
    file.drop_cached();
  }
  if (auto notice = file.take_fallback_notice()) {
    notices_.push_back(std::move(*notice));
  }
}

void BlockReader::fill(Slot& slot, Side side, io::WindowFile* trunk) {
  slot.block = {.planned = slot.planned, .begin = slot.begin};
  if (side != Side::kTrunk) {
    fill_from_shards(slot);
    slot.block.from_shards = slot.shard_bytes.span().first(slot.bytes);
  }
  if (side != Side::kShards) {
    const std::uint64_t offset = slot.planned->run.offset + slot.begin;
    const io::WindowRead read = trunk->read(offset, slot.bytes, slot.trunk_bytes.span());
    slot.block.from_trunk = std::span(read.payload, slot.bytes);
  }
}

void BlockReader::fill_from_shards(Slot& slot) {
  const std::span<std::byte> out = slot.shard_bytes.span().first(slot.bytes);
  std::fill(out.begin(), out.end(), std::byte{0});
  const std::uint64_t end = slot.begin + slot.bytes;
  for (const Piece& piece : slot.planned->pieces) {
    const std::uint64_t from = std::max(piece.offset, slot.begin);
    const std::uint64_t to = std::min(piece.offset + piece.bytes, end);
    if (from >= to) {
      continue;
    }
    const auto bytes = static_cast<std::size_t>(to - from);
    io::WindowFile& file = *shards_.at(piece.shard);
    const io::WindowRead read =
        file.read(piece.source + (from - piece.offset), bytes, slot.window.span());
    std::memcpy(out.data() + (from - slot.begin), read.payload, bytes);
  }
}

}  // namespace k3::tools

// The trunk matrices as a tape: pinned tiles in memory, the others streamed through a ring.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/window_buffer.h"
#include "model/weights.h"
#include "runtime/checkpoint.h"
#include "runtime/load_control.h"
#include "runtime/read_group.h"
#include "runtime/tape_layout.h"

namespace k3::runtime {

// Reads run ahead of the pass as far as the ring has room, over the end of the pass into the one that
// PassPlan announces. Everything but the completion of a read happens on the thread that runs the
// passes; all tiles pinned is the resident mode.
class StreamedTape final : public model::WeightTape {
 public:
  struct Options {
    std::vector<bool> pinned;    // [tile]
    std::size_t ring_bytes = 0;  // at least the largest window of a streamed tile
    StopFlag stop = nullptr;
    LoadProgress on_progress = {};
  };

  // Reads the pinned tiles. `checkpoint` and `files` must outlive the tape. Throws Error(kMemory, kIo,
  // kInterrupted), std::invalid_argument for a ring that is too small.
  StreamedTape(const Checkpoint& checkpoint,
               const WeightFiles& files,
               TapeLayout layout,
               Options options);
  StreamedTape(const StreamedTape&) = delete;
  StreamedTape& operator=(const StreamedTape&) = delete;
  StreamedTape(StreamedTape&&) = delete;
  StreamedTape& operator=(StreamedTape&&) = delete;
  ~StreamedTape() override;

  void begin_pass(const model::PassPlan& plan) override;

  // Throws Error(kIo) when its read failed, Error(kInterrupted) when the stop flag is set meanwhile.
  [[nodiscard]] model::Tile next(model::MatrixId id) override;
  void read_embedding(std::size_t token, std::span<float> out) override;

  // Seconds that next() waited for reads.
  [[nodiscard]] double wait_seconds() const { return wait_seconds_; }

  // Bytes of embedding rows read.
  [[nodiscard]] std::uint64_t embedding_bytes() const { return embedding_bytes_; }

 private:
  // A tile that is being read, or has been, and is not given back.
  struct Entry final : ReadGroup::Listener {
    explicit Entry(StreamedTape& owner) : tape(owner), group(*this, owner.files_.request_bytes()) {}

    void on_complete(ReadGroup& group, std::exception_ptr failure) noexcept override;

    StreamedTape& tape;
    ReadGroup group;
    std::size_t tile = 0;
    std::size_t begin = 0;  // in the ring
    std::byte* payload = nullptr;
    bool done = true;          // no read is under way; guarded by mutex_
    std::exception_ptr error;  // guarded by mutex_
  };

  // A streamed tile to read next: in the pass that runs or in the next one.
  struct Position {
    bool next_pass = false;
    std::size_t tile = 0;
  };

  void load_pinned(const LoadProgress& on_progress);
  void finish_loading(Entry& entry);
  [[nodiscard]] bool advance(Position& position) const;
  [[nodiscard]] std::size_t find_room(std::size_t bytes) const;
  void read_ahead() noexcept;
  void drop_from(std::size_t keep) noexcept;
  void wait_for(Entry& entry);
  void abandon(Entry& entry) noexcept;
  [[nodiscard]] bool failed(const Entry& entry);

  [[nodiscard]] Entry& queued(std::size_t index) {
    return *entries_[(first_ + index) % entries_.size()];
  }

  [[nodiscard]] const Entry& queued(std::size_t index) const {
    return *entries_[(first_ + index) % entries_.size()];
  }

  void release(std::size_t item) noexcept override;

  const Checkpoint& checkpoint_;
  const WeightFiles& files_;
  TapeLayout layout_;
  Options options_;
  TensorExtent embedding_;
  WindowBuffer pinned_memory_;
  WindowBuffer ring_;
  std::vector<std::byte*> pinned_payload_;       // [tile]; null for a streamed one
  std::vector<std::unique_ptr<Entry>> entries_;  // a circle
  std::size_t first_ = 0;                        // of the queue, in entries_
  std::size_t queued_ = 0;                       // entries of the queue, oldest first
  model::PassPlan plan_;
  std::size_t cursor_ = 0;  // tile that next() hands out
  Position ahead_;          // where read_ahead() goes on
  std::mutex mutex_;
  std::condition_variable changed_;
  double wait_seconds_ = 0.0;
  std::uint64_t embedding_bytes_ = 0;
};

}  // namespace k3::runtime

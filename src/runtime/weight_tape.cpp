#include "runtime/weight_tape.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <utility>

#include "base/aligned_buffer.h"
#include "base/float_bits.h"

namespace k3::runtime {
namespace {

using model::MatrixId;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kNoRoom = static_cast<std::size_t>(-1);
constexpr std::size_t kMostQueued = 512;  // tiles in the ring
constexpr std::chrono::milliseconds kStopPeriod{20};

// Elements of a view must lie on borders of their size; files keep no such promise.
std::byte* align_payload(std::byte* payload, std::size_t bytes, std::size_t alignment) {
  const std::size_t excess = reinterpret_cast<std::uintptr_t>(payload) % alignment;
  if (excess == 0) {
    return payload;
  }
  // The window begins on a border at least as coarse, so there is room in front.
  std::memmove(payload - excess, payload, bytes);
  return payload - excess;
}

std::size_t element_alignment(DType dtype) {
  return dtype == DType::kBf16 ? alignof(std::uint16_t) : alignof(float);
}

MatrixView view_of(const TapeTile& tile, const std::byte* payload) {
  if (tile.dtype == DType::kBf16) {
    return Bf16Matrix{reinterpret_cast<const std::uint16_t*>(payload), tile.rows, tile.cols,
                      tile.cols};
  }
  return F32Matrix{reinterpret_cast<const float*>(payload), tile.rows, tile.cols, tile.cols};
}

}  // namespace

StreamedTape::StreamedTape(const Checkpoint& checkpoint,
                           const WeightFiles& files,
                           TapeLayout layout,
                           Options options)
    : checkpoint_(checkpoint),
      files_(files),
      layout_(std::move(layout)),
      options_(std::move(options)),
      embedding_(checkpoint.tensor(model::kNoIndex, model::TensorRole::kEmbedding)),
      pinned_payload_(layout_.tiles.size()) {
  std::size_t largest_streamed = 0;
  std::size_t smallest_streamed = kNoRoom;
  for (std::size_t i = 0; i < layout_.tiles.size(); ++i) {
    if (!options_.pinned[i]) {
      const std::size_t window = layout_.tiles[i].memory_bytes;
      largest_streamed = std::max(largest_streamed, window);
      smallest_streamed = std::min(smallest_streamed, window);
    }
  }
  if (options_.ring_bytes < largest_streamed) {
    throw std::invalid_argument("the ring is smaller than a tile");
  }
  // At least one, which no pass uses when every tile is pinned.
  const std::size_t entries =
      largest_streamed == 0
          ? 1
          : std::clamp(options_.ring_bytes / smallest_streamed, std::size_t{1}, kMostQueued);
  for (std::size_t i = 0; i < entries; ++i) {
    entries_.push_back(std::make_unique<Entry>(*this));
    entries_.back()->group.reserve(largest_streamed, 1);
  }
  load_pinned(options_.on_progress);
  wait_seconds_ = 0.0;
  if (largest_streamed > 0) {
    ring_ = WindowBuffer(options_.ring_bytes, files_.alignment());
  }
}

StreamedTape::~StreamedTape() {
  drop_from(0);
}

// Pinned tiles, several at a time, so that all readers have something to do.
void StreamedTape::load_pinned(const LoadProgress& on_progress) {
  const std::uint64_t total = pinned_bytes(layout_, options_.pinned);
  pinned_memory_ = WindowBuffer(static_cast<std::size_t>(total), files_.alignment());
  constexpr std::size_t kTilesAtOnce = 8;
  std::deque<Entry> flight;
  std::size_t used = 0;
  std::uint64_t loaded = 0;
  const auto finish_oldest = [&] {
    finish_loading(flight.front());
    loaded += layout_.tiles[flight.front().tile].memory_bytes;
    flight.pop_front();
    if (on_progress) {
      on_progress(loaded, total);
    }
  };
  try {
    for (std::size_t i = 0; i < layout_.tiles.size(); ++i) {
      if (!options_.pinned[i]) {
        continue;
      }
      check_stop(options_.stop, "loading");
      if (flight.size() == kTilesAtOnce) {
        finish_oldest();
      }
      Entry& entry = flight.emplace_back(*this);
      entry.tile = i;
      entry.payload =
          entry.group.add(layout_.tiles[i].range,
                          pinned_memory_.span().subspan(used, layout_.tiles[i].memory_bytes));
      used += layout_.tiles[i].memory_bytes;
      entry.done = false;
      entry.group.submit(ErrorKind::kIo, ReadPriority::kTape);
    }
    while (!flight.empty()) {
      finish_oldest();
    }
  } catch (...) {
    // No read may go on into memory that is gone.
    std::ranges::for_each(flight, [this](Entry& entry) { abandon(entry); });
    throw;
  }
}

void StreamedTape::finish_loading(Entry& entry) {
  wait_for(entry);
  pinned_payload_[entry.tile] =
      align_payload(entry.payload, layout_.tiles[entry.tile].range.bytes, kCacheLine);
}

// Whether there is a tile to read at `position` or after it, which it then points to.
bool StreamedTape::advance(Position& position) const {
  while (true) {
    const bool head = position.next_pass ? plan_.next == NextForward::kWithLogits : plan_.head;
    const std::size_t end = head ? layout_.tiles.size() : layout_.head_begin;
    for (; position.tile < end; ++position.tile) {
      if (pinned_payload_[position.tile] == nullptr) {
        return true;
      }
    }
    if (position.next_pass || plan_.next == NextForward::kNone) {
      return false;
    }
    position = {.next_pass = true, .tile = 0};
  }
}

// Where the next `bytes` of the ring may begin, behind the youngest entry and before the oldest.
std::size_t StreamedTape::find_room(std::size_t bytes) const {
  if (queued_ == 0) {
    return 0;
  }
  const Entry& oldest = queued(0);
  const Entry& youngest = queued(queued_ - 1);
  const std::size_t used = youngest.begin + layout_.tiles[youngest.tile].memory_bytes;
  if (youngest.begin >= oldest.begin) {
    if (options_.ring_bytes - used >= bytes) {
      return used;
    }
    return oldest.begin >= bytes ? 0 : kNoRoom;
  }
  return oldest.begin - used >= bytes ? used : kNoRoom;
}

void StreamedTape::read_ahead() noexcept {
  while (queued_ < entries_.size()) {
    if (!advance(ahead_)) {
      return;
    }
    const TapeTile& tile = layout_.tiles[ahead_.tile];
    const std::size_t bytes = tile.memory_bytes;
    const std::size_t begin = find_room(bytes);
    if (begin == kNoRoom) {
      return;
    }
    Entry& entry = queued(queued_++);
    entry.tile = ahead_.tile++;
    entry.begin = begin;
    entry.done = false;
    entry.error = nullptr;
    entry.payload = entry.group.add(tile.range, ring_.span().subspan(begin, bytes));
    entry.group.submit(ErrorKind::kIo, ReadPriority::kTape);
  }
}

// Takes back a read; the entry is free afterwards.
void StreamedTape::abandon(Entry& entry) noexcept {
  entry.group.abandon();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return entry.done; });
}

// Takes back what was read ahead, but for the oldest `keep` entries.
void StreamedTape::drop_from(std::size_t keep) noexcept {
  // The youngest first: the readers begin none of them while the older ones are taken back.
  while (queued_ > keep) {
    abandon(queued(--queued_));
  }
}

bool StreamedTape::failed(const Entry& entry) {
  const std::lock_guard lock(mutex_);
  return entry.error != nullptr;
}

void StreamedTape::begin_pass(const model::PassPlan& plan) {
  // What was read ahead is kept as far as this pass and the one after it will use it in this order.
  plan_ = plan;
  cursor_ = 0;
  Position position;
  std::size_t keep = 0;
  while (keep < queued_ && advance(position) && queued(keep).tile == position.tile &&
         !failed(queued(keep))) {
    ++position.tile;
    ++keep;
  }
  drop_from(keep);
  ahead_ = position;
  read_ahead();
}

void StreamedTape::wait_for(Entry& entry) {
  const Clock::time_point begin = Clock::now();
  std::unique_lock lock(mutex_);
  while (!entry.done) {
    changed_.wait_for(lock, kStopPeriod);
    if (!entry.done) {
      check_stop(options_.stop, "waiting for weights");
    }
  }
  wait_seconds_ += std::chrono::duration<double>(Clock::now() - begin).count();
  if (entry.error != nullptr) {
    std::rethrow_exception(entry.error);
  }
}

model::Tile StreamedTape::next(MatrixId id) {
  if (cursor_ >= layout_.tiles.size() || layout_.tiles[cursor_].id != id) {
    throw std::logic_error("the forward pass left the order of the tape");
  }
  const TapeTile& tile = layout_.tiles[cursor_];
  const std::byte* payload = pinned_payload_[cursor_];
  if (payload == nullptr) {
    if (queued_ == 0 || queued(0).tile != cursor_) {
      throw std::logic_error("a tile is asked for before the one in front of it was given back");
    }
    Entry& entry = queued(0);
    wait_for(entry);
    payload = align_payload(entry.payload, tile.range.bytes, element_alignment(tile.dtype));
  }
  return {*this, cursor_++, view_of(tile, payload)};
}

void StreamedTape::release(std::size_t item) noexcept {
  if (pinned_payload_[item] != nullptr) {
    return;
  }
#ifndef NDEBUG
  // Whoever reads a tile that was given back finds NaN.
  const std::span<std::byte> gone =
      ring_.span().subspan(queued(0).begin, layout_.tiles[item].memory_bytes);
  std::memset(gone.data(), 0xFF, gone.size());
#endif
  first_ = (first_ + 1) % entries_.size();
  --queued_;
  read_ahead();
}

void StreamedTape::Entry::on_complete(ReadGroup& /*group*/, std::exception_ptr failure) noexcept {
  const std::lock_guard lock(tape.mutex_);
  done = true;
  error = std::move(failure);
  tape.changed_.notify_all();
}

void StreamedTape::read_embedding(std::size_t token, std::span<float> out) {
  const bool wide = embedding_.dtype == DType::kF32;
  // A bf16 row is read into the upper half of `out` and widened from the front.
  const std::span<std::byte> row =
      std::as_writable_bytes(out).last(wide ? out.size_bytes() : out.size_bytes() / 2);
  checkpoint_.read_bytes(embedding_, token * row.size(), row);
  embedding_bytes_ += row.size();
  for (std::size_t i = 0; !wide && i < out.size(); ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, row.data() + i * sizeof(bits), sizeof(bits));
    out[i] = bf16_to_float(bits);
  }
}

}  // namespace k3::runtime

// Routed experts: a cache of slots, filled from disk as layers ask.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "k3/config.h"

#include "base/window_buffer.h"
#include "model/weights.h"
#include "runtime/checkpoint.h"
#include "runtime/expert_slots.h"
#include "runtime/load_control.h"
#include "runtime/read_group.h"
#include "runtime/weight_files.h"

namespace k3::runtime {

// Where the tensors of every routed expert lie.
class ExpertPlaces {
 public:
  // Throws nothing that Checkpoint::expert does not.
  ExpertPlaces(const Checkpoint& checkpoint, const WeightFiles& files, const ModelConfig& config);

  static constexpr std::size_t kTensors = std::tuple_size_v<ExpertExtents>;

  // Consecutive tensors of one file, read at once. `tensors`: how many of sorted() it holds.
  struct Run {
    FileRange range;
    std::size_t tensors = 0;
  };

  // The tensors of an expert in file order, as indices in the order of ExpertExtents, and the runs
  // they form.
  struct Layout {
    std::array<std::uint8_t, kTensors> sorted = {};
    std::array<Run, kTensors> runs = {};
    std::size_t run_count = 0;
  };

  [[nodiscard]] Layout layout(std::size_t layer, std::size_t expert) const;

  // Offset of a tensor in its file.
  [[nodiscard]] std::uint64_t offset(std::size_t layer,
                                     std::size_t expert,
                                     std::size_t tensor) const {
    return place(layer, expert)[tensor] & kOffsetMask;
  }

  // File and offset of the first tensor in one number: the disk order of experts.
  [[nodiscard]] std::uint64_t order(std::size_t layer, std::size_t expert) const;

  // Memory that any expert's windows fit into, in multiples of WeightFiles::alignment().
  [[nodiscard]] std::size_t slot_bytes() const { return slot_bytes_; }

  [[nodiscard]] std::size_t payload_bytes() const { return payload_bytes_; }

  [[nodiscard]] std::size_t memory_of(const FileRange& range) const {
    return files_.memory_of(range);
  }

  // Experts in all.
  [[nodiscard]] std::size_t count() const { return places_.size(); }

  [[nodiscard]] std::size_t memory_bytes() const { return places_.capacity() * sizeof(Place); }

 private:
  using Place = std::array<std::uint64_t, kTensors>;  // shard << 48 | offset

  static constexpr unsigned kShardShift = 48;
  static constexpr std::uint64_t kOffsetMask = (std::uint64_t{1} << kShardShift) - 1;

  [[nodiscard]] const Place& place(std::size_t layer, std::size_t expert) const {
    return places_[(layer - first_layer_) * experts_ + expert];
  }

  [[nodiscard]] Place place_of(const ExpertExtents& extents, std::size_t layer);
  void measure_slots(const ModelConfig& config);

  const WeightFiles& files_;
  std::size_t first_layer_;  // with experts
  std::size_t experts_;      // of a layer
  std::array<std::size_t, kTensors> bytes_ = {};
  std::vector<Place> places_;  // [layer][expert]
  std::size_t slot_bytes_ = 0;
  std::size_t payload_bytes_ = 0;
};

// Misses of a request are read in disk order, as many at once as there are slots; each expert is
// handed out when it has arrived. Every distinct expert of a request is read at most once.
class StreamedExperts final : public model::ExpertSource {
 public:
  // `slots` is at least the number of experts that a token uses. `places` and `files` must outlive the
  // experts. Throws Error(kMemory).
  StreamedExperts(const ExpertPlaces& places,
                  const WeightFiles& files,
                  const ModelConfig& config,
                  std::size_t slots,
                  StopFlag stop);
  StreamedExperts(const StreamedExperts&) = delete;
  StreamedExperts& operator=(const StreamedExperts&) = delete;
  StreamedExperts(StreamedExperts&&) = delete;
  StreamedExperts& operator=(StreamedExperts&&) = delete;
  ~StreamedExperts() override;

  void request(std::size_t layer, std::span<const std::uint32_t> experts) override;
  [[nodiscard]] model::ExpertLease next() override;

  [[nodiscard]] ExpertCounts counts() const;

  // Seconds that next() waited for reads.
  [[nodiscard]] double wait_seconds() const { return wait_seconds_; }

 private:
  // A read under way.
  struct Flight final : ReadGroup::Listener {
    Flight(StreamedExperts& owner, std::size_t request_bytes)
        : experts(owner), group(*this, request_bytes) {}

    void on_complete(ReadGroup& group, std::exception_ptr error) noexcept override;

    StreamedExperts& experts;
    ReadGroup group;
    std::uint32_t slot = 0;
    std::uint32_t expert = 0;
    Flight* next = nullptr;  // to submit
  };

  void stop_reads() noexcept;
  [[nodiscard]] Flight* take_misses() noexcept;
  void prepare(Flight& flight) noexcept;
  static void submit(Flight* first) noexcept;
  void finish(Flight& flight, std::exception_ptr error) noexcept;
  void release(std::uint32_t expert) noexcept override;
  [[nodiscard]] Error failure(std::uint32_t expert, const std::exception_ptr& error) const;

  const ExpertPlaces& places_;
  const ModelConfig& config_;
  StopFlag stop_;
  std::size_t slot_stride_;
  WindowBuffer memory_;                           // [slot][slot_stride_]
  std::vector<model::ExpertWeights> weights_;     // [slot]
  std::vector<std::unique_ptr<Flight>> flights_;  // all there are
  mutable std::mutex mutex_;                      // guards everything below
  std::condition_variable arrived_changed_;
  ExpertSlots slots_;
  std::vector<Flight*> idle_;           // flights that read nothing
  std::size_t layer_ = 0;               // of the current request
  std::vector<std::uint32_t> misses_;   // not yet submitted, in reversed disk order
  std::vector<std::uint32_t> arrived_;  // pinned, not yet handed out, a circle
  std::size_t arrived_first_ = 0;
  std::size_t arrived_count_ = 0;
  std::size_t outstanding_ = 0;  // of the request, not yet handed out
  std::exception_ptr error_;     // of the first read that failed
  std::uint32_t failed_expert_ = 0;
  double wait_seconds_ = 0.0;
};

}  // namespace k3::runtime

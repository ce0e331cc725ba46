// Which routed expert lies in which slot of the expert cache, and which one makes room for another.
//
// A table alone: no weights, no reads, no threads. The caller holds one lock around all calls.
// Nothing is allocated after construction.
//
// Layers are visited cyclically, so the layer just left is the farthest in the future, and the least
// recently used expert belongs to the layer that comes next: the order of use alone keeps nothing
// below one whole token. The victim is the expert whose slot promises the fewest hits per time:
//
//   worth = hits / (distance + wait)
//
// distance: from the current layer to the expert's, in cycles (1/layers .. 1); hits and wait: what
// reuse_odds.h has learnt about experts of its age, rank and rate. Of experts that are equally
// likely to be used again this keeps those that are used sooner; at equal distance, the likelier.
//
// What is known of an expert changes at visits of its layer alone. So each layer's slots stand in a
// list by worth at distance 1, sorted when the layer is visited, and a victim is the least of the
// heads: an eviction costs O(layers + experts of a layer), a request O(experts of a layer).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/reuse_odds.h"

namespace k3::runtime {

// What the table has seen. A request of a layer asks for each of its distinct experts once.
struct ExpertCounts {
  std::uint64_t requests = 0;   // experts asked for
  std::uint64_t hits = 0;       // of them, resident when their request began
  std::uint64_t evictions = 0;  // resident experts that made room
  std::uint64_t failures = 0;   // reads that failed
};

class ExpertSlots {
 public:
  static constexpr std::uint32_t kNone = ~0U;

  // A slot is empty, or holds an expert whose bytes are being read, or one that can be used.
  enum class State : std::uint8_t {
    kEmpty,
    kLoading,
    kResident
  };

  // Slots for the experts of `layers` x `experts`; a layer without experts is never asked for.
  ExpertSlots(std::size_t layers, std::size_t experts, std::size_t slots);

  // The slot that holds or loads this expert, else kNone.
  [[nodiscard]] std::uint32_t find(std::size_t layer, std::uint32_t expert) const {
    return slot_of_[layer * experts_ + expert];
  }

  [[nodiscard]] State state(std::uint32_t slot) const { return slots_[slot].state; }

  // A request begins: the distinct experts that `layer` uses now, likeliest to be used again first
  // (the choices of the last token in their order, then those of the tokens before it); the order
  // matters to the policy alone. Ends the previous request. What it asks for stays until used() or
  // the end of the request. Layers come in ascending order, over and over.
  void begin_request(std::size_t layer, std::span<const std::uint32_t> experts);

  // A slot for an expert of the current request that find() does not know: an empty one, else that
  // of a resident expert without pins which the request does not wait for. The slot is kLoading
  // then. kNone when there is none at the moment: a pin, a read or a use must end first.
  [[nodiscard]] std::uint32_t assign(std::size_t layer, std::uint32_t expert);

  // The bytes of a loading slot have arrived, or could not be read: the slot is empty then, so that
  // a failed read is never served.
  void loaded(std::uint32_t slot);
  void failed(std::uint32_t slot);

  // A pinned slot keeps its expert. Pins count.
  void pin(std::uint32_t slot);
  void unpin(std::uint32_t slot);

  // The current request is done with the expert: the slot may serve the rest of the request.
  void used(std::uint32_t slot);

  // Nothing is wanted any more.
  void end_request();

  [[nodiscard]] std::size_t layers() const { return layers_; }

  [[nodiscard]] std::size_t experts() const { return experts_; }

  [[nodiscard]] std::size_t slots() const { return slots_.size(); }

  [[nodiscard]] const ExpertCounts& counts() const { return counts_; }

 private:
  struct Slot {
    State state = State::kEmpty;
    bool wanted = false;  // by the current request, which has not used it
    std::uint32_t pins = 0;
    std::uint32_t key = kNone;     // layer * experts + expert
    std::uint32_t before = kNone;  // in the list of its layer
    std::uint32_t after = kNone;
    Worth worth;  // as of the last visit of its layer
  };

  [[nodiscard]] std::uint32_t key_of(std::size_t layer, std::uint32_t expert) const;
  void place_experts(std::span<const std::uint32_t> experts);
  void learn(std::size_t layer);
  void sort_list(std::size_t layer);
  [[nodiscard]] Worth worth_of(std::uint32_t key) const;
  [[nodiscard]] bool evictable(const Slot& slot) const;
  [[nodiscard]] std::uint32_t victim() const;
  void clear(std::uint32_t slot);
  void link(std::uint32_t slot);  // into the list of its layer, by worth
  void unlink(std::uint32_t slot);

  std::size_t layers_;
  std::size_t experts_;
  std::vector<std::uint32_t> slot_of_;  // [layer][expert]
  std::vector<ExpertUse> uses_;         // [layer][expert]
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> empty_;   // a stack
  std::vector<std::uint32_t> first_;   // [layer] head of the list, the least worth
  std::vector<std::uint32_t> places_;  // [expert] in the current request, kNone when not in it
  std::vector<std::uint32_t> sorted_;  // scratch of sort_list()
  std::size_t layer_;                  // of the current or last request
  ReuseOdds odds_;
  ExpertCounts counts_;
};

}  // namespace k3::runtime

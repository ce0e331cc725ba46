#include "runtime/expert_slots.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace k3::runtime {
namespace {

void require(bool holds, const char* what) {
  if (!holds) {
    throw std::logic_error(what);
  }
}

}  // namespace

ExpertSlots::ExpertSlots(std::size_t layers, std::size_t experts, std::size_t slots)
    : layers_(layers),
      experts_(experts),
      slot_of_(layers * experts, kNone),
      uses_(layers * experts),
      slots_(slots),
      first_(layers, kNone),
      places_(experts, kNone),
      layer_(layers) {
  empty_.reserve(slots);
  sorted_.reserve(experts);
  for (std::size_t slot = slots; slot > 0; --slot) {
    empty_.push_back(static_cast<std::uint32_t>(slot - 1));
  }
}

std::uint32_t ExpertSlots::key_of(std::size_t layer, std::uint32_t expert) const {
  return static_cast<std::uint32_t>(layer * experts_ + expert);
}

void ExpertSlots::begin_request(std::size_t layer, std::span<const std::uint32_t> experts) {
  require(layer < layers_, "a request for a layer that does not exist");
  end_request();
  place_experts(experts);
  if (layer_ < layers_ && layer <= layer_) {
    odds_.update();
  }
  layer_ = layer;
  learn(layer);
  counts_.requests += experts.size();
  for (const std::uint32_t expert : experts) {
    const std::uint32_t slot = find(layer, expert);
    if (slot != kNone) {
      counts_.hits += slots_[slot].state == State::kResident ? 1U : 0U;
      slots_[slot].wanted = true;
    }
  }
  sort_list(layer);
}

void ExpertSlots::place_experts(std::span<const std::uint32_t> experts) {
  std::ranges::fill(places_, kNone);
  for (std::size_t place = 0; place < experts.size(); ++place) {
    require(experts[place] < experts_, "a request for an expert that does not exist");
    std::uint32_t& entry = places_[experts[place]];
    require(entry == kNone, "an expert is asked for twice in one request");
    entry = static_cast<std::uint32_t>(place);
  }
}

// Tells the odds who was used again, and brings the uses of the layer up to this visit.
void ExpertSlots::learn(std::size_t layer) {
  for (std::uint32_t expert = 0; expert < experts_; ++expert) {
    ExpertUse& use = uses_[key_of(layer, expert)];
    const bool used = places_[expert] != kNone;
    if (use.age > 0) {
      odds_.observe(ReuseOdds::class_of(use), used);
    }
    if (used) {
      note_used(use, rank_range(places_[expert]));
    } else if (use.age > 0) {
      note_unused(use);
    }
  }
}

void ExpertSlots::sort_list(std::size_t layer) {
  sorted_.clear();
  for (std::uint32_t slot = first_[layer]; slot != kNone; slot = slots_[slot].after) {
    slots_[slot].worth = worth_of(slots_[slot].key);
    sorted_.push_back(slot);
  }
  std::ranges::sort(sorted_, {}, [&](std::uint32_t slot) { return slots_[slot].worth.at(1.0F); });
  std::uint32_t before = kNone;
  for (const std::uint32_t slot : sorted_) {
    (before == kNone ? first_[layer] : slots_[before].after) = slot;
    slots_[slot].before = before;
    slots_[slot].after = kNone;
    before = slot;
  }
}

Worth ExpertSlots::worth_of(std::uint32_t key) const {
  return odds_.worth(ReuseOdds::class_of(uses_[key]));
}

void ExpertSlots::end_request() {
  if (layer_ == layers_) {
    return;
  }
  for (std::uint32_t slot = first_[layer_]; slot != kNone; slot = slots_[slot].after) {
    slots_[slot].wanted = false;
  }
  std::ranges::fill(places_, kNone);
}

std::uint32_t ExpertSlots::assign(std::size_t layer, std::uint32_t expert) {
  require(layer == layer_ && places_[expert] != kNone,
          "a slot is assigned to an expert that the current request does not name");
  require(find(layer, expert) == kNone, "a slot is assigned to an expert that has one");
  if (empty_.empty()) {
    const std::uint32_t evicted = victim();
    if (evicted == kNone) {
      return kNone;
    }
    clear(evicted);
    ++counts_.evictions;
  }
  const std::uint32_t slot = empty_.back();
  empty_.pop_back();
  const std::uint32_t key = key_of(layer, expert);
  slots_[slot] = {.state = State::kLoading, .wanted = true, .key = key, .worth = worth_of(key)};
  slot_of_[key] = slot;
  link(slot);
  return slot;
}

bool ExpertSlots::evictable(const Slot& slot) const {
  return slot.state == State::kResident && !slot.wanted && slot.pins == 0;
}

std::uint32_t ExpertSlots::victim() const {
  std::uint32_t least = kNone;
  float least_worth = std::numeric_limits<float>::infinity();
  for (std::size_t layer = 0; layer < layers_; ++layer) {
    std::uint32_t slot = first_[layer];
    while (slot != kNone && !evictable(slots_[slot])) {
      slot = slots_[slot].after;
    }
    if (slot == kNone) {
      continue;
    }
    const std::size_t ahead = layer > layer_ ? layer - layer_ : layer + layers_ - layer_;
    const float worth =
        slots_[slot].worth.at(static_cast<float>(ahead) / static_cast<float>(layers_));
    if (worth < least_worth) {
      least = slot;
      least_worth = worth;
    }
  }
  return least;
}

void ExpertSlots::loaded(std::uint32_t slot) {
  require(slots_[slot].state == State::kLoading, "bytes arrive in a slot that does not load");
  slots_[slot].state = State::kResident;
}

void ExpertSlots::failed(std::uint32_t slot) {
  require(slots_[slot].state == State::kLoading, "a read fails in a slot that does not load");
  ++counts_.failures;
  clear(slot);
}

void ExpertSlots::pin(std::uint32_t slot) {
  require(slots_[slot].state == State::kResident, "a slot without an expert is pinned");
  ++slots_[slot].pins;
}

void ExpertSlots::unpin(std::uint32_t slot) {
  require(slots_[slot].pins > 0, "a slot without a pin is unpinned");
  --slots_[slot].pins;
}

void ExpertSlots::used(std::uint32_t slot) {
  require(slots_[slot].state == State::kResident, "a slot without an expert was used");
  slots_[slot].wanted = false;
}

void ExpertSlots::clear(std::uint32_t slot) {
  unlink(slot);
  slot_of_[slots_[slot].key] = kNone;
  slots_[slot] = Slot();
  empty_.push_back(slot);
}

void ExpertSlots::link(std::uint32_t slot) {
  Slot& entry = slots_[slot];
  const std::size_t layer = entry.key / experts_;
  const float worth = entry.worth.at(1.0F);
  std::uint32_t after = first_[layer];
  std::uint32_t before = kNone;
  while (after != kNone && slots_[after].worth.at(1.0F) < worth) {
    before = after;
    after = slots_[after].after;
  }
  entry.before = before;
  entry.after = after;
  (before == kNone ? first_[layer] : slots_[before].after) = slot;
  if (after != kNone) {
    slots_[after].before = slot;
  }
}

void ExpertSlots::unlink(std::uint32_t slot) {
  const Slot& entry = slots_[slot];
  (entry.before == kNone ? first_[entry.key / experts_] : slots_[entry.before].after) = entry.after;
  if (entry.after != kNone) {
    slots_[entry.after].before = entry.before;
  }
}

}  // namespace k3::runtime

// Memory: what the user allows, and the plan that the engine makes of it and keeps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace k3 {

// Budgets in bytes. Without any of them the plan takes 95% of what is available.
struct MemoryOptions {
  std::optional<std::uint64_t> total_bytes = {};  // of the whole process
  std::optional<std::uint64_t> trunk_bytes = {};  // trunk in memory: pinned tiles and the ring
  std::optional<std::uint64_t> cache_bytes = {};  // expert slots
  // The smallest ring; with full_recompute also one state for all layers, so that a pass runs a whole
  // prefix.
  bool ultra_low_memory = false;
  bool full_recompute = false;   // every pass of a sequence starts at position 0
  std::size_t positions = 4096;  // tokens that a session may reach
  std::size_t chunk = 0;         // tokens of a forward call, of all sessions; 0: chosen by the plan
  std::size_t sessions = 1;      // that live at the same time
  std::size_t logit_rows = 1;    // rows of logits that the caller takes at a time
};

struct MemoryItem {
  std::string name;
  std::uint64_t bytes = 0;
};

// What is allocated. The sum of the items is the ceiling of the process.
struct MemoryPlan {
  std::vector<MemoryItem> items;
  std::uint64_t total = 0;
  std::uint64_t available = 0;  // to the process, before it takes anything; 0: unknown
  std::string bound_by;         // what sets `available`: "MemAvailable" or a control group

  std::uint64_t trunk_bytes = 0;    // of the tape, as stored
  std::uint64_t pinned_bytes = 0;   // of them, kept in memory
  std::uint64_t pinned_memory = 0;  // that they take, windows included
  std::uint64_t ring_bytes = 0;     // 0: nothing is streamed
  std::size_t expert_slots = 0;
  std::uint64_t slot_bytes = 0;
  std::size_t experts = 0;  // of the model
  std::size_t chunk = 0;
  std::size_t positions = 0;
  std::size_t sessions = 0;
  bool one_state = false;          // sessions run whole prefixes alone
  std::vector<std::string> notes;  // budgets larger than can be used
};

// A pair of budgets known by a name, in GB (10^9 bytes).
struct MemoryPreset {
  std::string_view name;
  double trunk_gb;
  double cache_gb;
  double available_gb;  // from which it is the nearest one; 0: never
};

// ultra, laptop, desktop, workstation, server, max.
[[nodiscard]] std::span<const MemoryPreset> memory_presets();

// Null for an unknown name.
[[nodiscard]] const MemoryPreset* find_memory_preset(std::string_view name);

// The published preset for so much available memory.
[[nodiscard]] const MemoryPreset& nearest_memory_preset(std::uint64_t available_bytes);

}  // namespace k3

// The memory plan: one function decides, and everything is allocated as it says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "k3/config.h"
#include "k3/memory.h"

#include "runtime/tape_layout.h"

namespace k3::runtime {

struct PlanInput {
  const ModelConfig& config;
  const TapeLayout& layout;
  std::size_t slot_bytes = 0;         // of an expert
  std::size_t experts = 0;            // of all layers
  std::uint64_t program_bytes = 0;    // resident before anything of the plan: program, index
  std::uint64_t vector_bytes = 0;     // of the small vectors, float32
  std::size_t threads = 1;            // of all kinds
  std::uint64_t available_bytes = 0;  // 0: unknown, nothing is refused
  std::string bound_by;
};

// Share of the available memory that a plan may take.
inline constexpr double kUsableShare = 0.95;

struct PlannedMemory {
  MemoryPlan plan;
  std::vector<bool> pinned;  // [tile of the layout]: kept in memory
};

// Throws Error(kMemory), before anything is allocated, when the total exceeds kUsableShare of what is
// available or a budget is below the least that works: with the bytes needed and what to do.
[[nodiscard]] PlannedMemory plan_memory(const PlanInput& input, const MemoryOptions& options);

}  // namespace k3::runtime

#include "runtime/memory_plan.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "k3/errors.h"

#include "model/sequence_state.h"
#include "model/workspace.h"

namespace k3::runtime {
namespace {

constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20U;
constexpr std::uint64_t kGigabyte = 1'000'000'000;
constexpr std::uint64_t kProgramAllowance =
    8 * kMebibyte;  // heap of small things, buffers of output
constexpr std::uint64_t kThreadAllowance = kMebibyte / 4;  // touched stack and heap of a thread
constexpr std::uint64_t kUsualRing = 300'000'000;
constexpr std::uint64_t kLargestRing = kGigabyte;
constexpr std::size_t kLargestChunk = 512;
constexpr std::uint64_t kKeptLogits = 2;  // rows that a caller keeps beside those it takes

std::string gigabytes(std::uint64_t bytes) {
  std::array<char, 32> text = {};
  std::snprintf(text.data(), text.size(), "%.3f GB",
                static_cast<double>(bytes) / static_cast<double>(kGigabyte));
  return text.data();
}

// What the budgets are divided into, and what cannot be divided.
class Planner {
 public:
  Planner(const PlanInput& input, const MemoryOptions& options) : input_(input), options_(options) {
    plan_.available = input.available_bytes;
    plan_.bound_by = input.bound_by;
    plan_.trunk_bytes = input.layout.payload_bytes;
    plan_.slot_bytes = input.slot_bytes;
    plan_.experts = input.experts;
    plan_.positions = options.positions;
    plan_.sessions = options.sessions;
    plan_.one_state = options.ultra_low_memory && options.full_recompute;
    usable_ =
        input.available_bytes == 0
            ? UINT64_MAX
            : static_cast<std::uint64_t>(static_cast<double>(input.available_bytes) * kUsableShare);
  }

  PlannedMemory run() {
    check_cache_budget();
    add_fixed();
    plan_.chunk = choose_chunk();
    add("activations (" + std::to_string(plan_.chunk) + " tokens at a time)",
        model::Workspace::bytes(input_.config, plan_.chunk));
    const bool automatic = options_.total_bytes || !options_.trunk_bytes || !options_.cache_bytes;
    const std::uint64_t rest = automatic ? rest_of_total() : 0;
    const std::uint64_t trunk = options_.trunk_bytes.value_or(rest - std::min(rest, least_cache()));
    divide_trunk(trunk);
    const std::uint64_t left = rest - std::min(rest, plan_.ring_bytes + plan_.pinned_memory);
    divide_cache(options_.cache_bytes.value_or(left));
    add("trunk, pinned", plan_.pinned_memory);
    add("trunk, ring", plan_.ring_bytes);
    add("expert slots (" + std::to_string(plan_.expert_slots) + ")",
        plan_.expert_slots * plan_.slot_bytes);
    check_total();
    note_surplus();
    return {std::move(plan_), std::move(pinned_)};
  }

 private:
  void add(std::string name, std::uint64_t bytes) {
    plan_.items.push_back({std::move(name), bytes});
    plan_.total += bytes;
  }

  void add_fixed() {
    add("program and index",
        input_.program_bytes + kProgramAllowance + input_.threads * kThreadAllowance);
    add("small vectors", input_.vector_bytes);
    const auto kind = plan_.one_state ? model::StateKind::kOneLayer : model::StateKind::kAllLayers;
    add("sequence state", plan_.sessions * model::SequenceState::fixed_bytes(input_.config, kind));
    add("latents (" + std::to_string(plan_.positions) + " positions)",
        plan_.sessions * model::SequenceState::latent_bytes(input_.config, kind, plan_.positions));
    add("logits", (kKeptLogits + options_.logit_rows) * input_.config.vocab_size * sizeof(float));
  }

  // The budget of the whole process.
  [[nodiscard]] std::uint64_t budget() const { return options_.total_bytes.value_or(usable_); }

  [[nodiscard]] std::uint64_t least_slots() const {
    return input_.experts == 0 ? 0 : input_.config.num_experts_per_token * input_.slot_bytes;
  }

  // Room for two tiles, so that one is read while the other is used.
  [[nodiscard]] std::uint64_t least_ring() const {
    return std::min<std::uint64_t>(2 * input_.layout.largest_tile, input_.layout.memory_bytes);
  }

  // Experts within the budget given, as far as there are any, or the least that works.
  [[nodiscard]] std::uint64_t least_cache() const {
    return std::min<std::uint64_t>(options_.cache_bytes.value_or(least_slots()),
                                   input_.experts * input_.slot_bytes);
  }

  // The same, with the trunk.
  [[nodiscard]] std::uint64_t least_weights() const {
    return least_cache() + std::min<std::uint64_t>(options_.trunk_bytes.value_or(least_ring()),
                                                   input_.layout.memory_bytes);
  }

  [[nodiscard]] std::size_t choose_chunk() const {
    if (plan_.one_state) {
      return std::max(options_.positions, std::size_t{1});
    }
    const std::size_t tokens = std::max(options_.positions * options_.sessions, std::size_t{1});
    if (options_.chunk > 0) {
      return std::min(options_.chunk, tokens);
    }
    const std::size_t most = std::min(tokens, kLargestChunk);
    const std::uint64_t rest = budget() - std::min(budget(), plan_.total);
    const std::uint64_t weights = least_weights();
    const std::uint64_t share = std::min(rest / 10, rest - std::min(rest, weights));
    for (std::size_t chunk = most; chunk > 1; chunk /= 2) {
      if (model::Workspace::bytes(input_.config, chunk) <= share) {
        return chunk;
      }
    }
    return 1;
  }

  // What a total leaves for trunk and experts; refused when that is below the least.
  [[nodiscard]] std::uint64_t rest_of_total() const {
    const std::uint64_t least = plan_.total + least_weights();
    if (budget() < least) {
      throw Error(ErrorKind::kMemory,
                  {.what = options_.total_bytes ? "the memory budget (--ram) is too small"
                                                : "not enough memory is available",
                   .expected = "at least " + gigabytes(least),
                   .found = gigabytes(budget()) +
                            (options_.total_bytes ? "" : ", 95% of what is available")});
    }
    return budget() - plan_.total;
  }

  void check_cache_budget() const {
    if (options_.cache_bytes && *options_.cache_bytes < least_slots()) {
      throw Error(ErrorKind::kMemory,
                  {.what = "the expert cache is too small",
                   .expected = "at least " + std::to_string(input_.config.num_experts_per_token) +
                               " slots, " + gigabytes(least_slots()) + " (" +
                               std::to_string(least_slots()) + " bytes)",
                   .found = std::to_string(*options_.cache_bytes / input_.slot_bytes) + " slots, " +
                            gigabytes(*options_.cache_bytes)});
    }
    if (options_.trunk_bytes && *options_.trunk_bytes < least_ring()) {
      throw Error(ErrorKind::kMemory, {.what = "the memory for the trunk is too small",
                                       .expected = "at least " + gigabytes(least_ring()) + " (" +
                                                   std::to_string(least_ring()) + " bytes)",
                                       .found = gigabytes(*options_.trunk_bytes)});
    }
  }

  void divide_trunk(std::uint64_t budget) {
    const std::uint64_t whole = input_.layout.memory_bytes;
    std::uint64_t pin_budget = whole;
    if (budget >= whole) {
      if (options_.trunk_bytes && budget > whole) {
        plan_.notes.push_back("the trunk budget of " + gigabytes(budget) +
                              " is larger than the trunk: " + gigabytes(budget - whole) +
                              " stay unused");
      }
    } else {
      const std::uint64_t usual =
          options_.ultra_low_memory
              ? least_ring()
              : std::clamp(budget / 8, std::min(kUsualRing, whole / 8), kLargestRing);
      plan_.ring_bytes = std::min(std::max(usual, least_ring()), budget);
      pin_budget = budget - plan_.ring_bytes;
    }
    pinned_ = choose_pinned(input_.layout, pin_budget);
    plan_.pinned_memory = pinned_bytes(input_.layout, pinned_);
    for (std::size_t i = 0; i < pinned_.size(); ++i) {
      plan_.pinned_bytes += pinned_[i] ? input_.layout.tiles[i].range.bytes : 0;
    }
  }

  void divide_cache(std::uint64_t budget) {
    if (input_.experts == 0) {
      return;
    }
    const std::uint64_t slots = budget / input_.slot_bytes;
    plan_.expert_slots = static_cast<std::size_t>(std::min<std::uint64_t>(slots, input_.experts));
    if (options_.cache_bytes && slots > input_.experts) {
      plan_.notes.push_back(
          "the expert cache of " + gigabytes(budget) + " is larger than all experts: " +
          gigabytes(budget - input_.experts * input_.slot_bytes) + " stay unused");
    }
  }

  void check_total() const {
    const std::uint64_t most = std::min(usable_, options_.total_bytes.value_or(UINT64_MAX));
    if (plan_.total <= most) {
      return;
    }
    throw Error(
        ErrorKind::kMemory,
        {.what =
             "the memory plan does not fit, " + gigabytes(plan_.total - most) +
             " are missing: choose a smaller --preset, --ram, --trunk-gb or --cache-gb, a shorter "
             "prompt or --gen, or --ultra-low-memory",
         .expected = "at most " + gigabytes(most) +
                     (most == usable_ ? ", 95% of the " + gigabytes(plan_.available) +
                                            " available (" + plan_.bound_by + ")"
                                      : ", the budget of --ram"),
         .found = gigabytes(plan_.total) + list_items()});
  }

  void note_surplus() {
    const bool all = plan_.ring_bytes == 0 && plan_.expert_slots == input_.experts;
    const std::uint64_t total = options_.total_bytes.value_or(0);
    if (all && total > plan_.total) {
      plan_.notes.push_back("the budget of " + gigabytes(total) +
                            " is larger than the run can use: " + gigabytes(total - plan_.total) +
                            " stay unused");
    }
  }

  [[nodiscard]] std::string list_items() const {
    std::string text = ":";
    for (const MemoryItem& item : plan_.items) {
      text += "\n  " + item.name + " " + gigabytes(item.bytes);
    }
    return text;
  }

  const PlanInput& input_;
  const MemoryOptions& options_;
  MemoryPlan plan_;
  std::vector<bool> pinned_;
  std::uint64_t usable_ = 0;
};

constexpr std::array<MemoryPreset, 6> kPresets = {{
    {"ultra", 2.5, 0.31, 0.0},
    {"laptop", 3.0, 1.0, 10.0},
    {"desktop", 16.0, 10.0, 32.0},
    {"workstation", 60.0, 30.0, 96.0},
    {"server", 110.0, 13.0, 192.0},
    {"max", 110.0, 109.0, 0.0},
}};

}  // namespace

PlannedMemory plan_memory(const PlanInput& input, const MemoryOptions& options) {
  return Planner(input, options).run();
}

}  // namespace k3::runtime

namespace k3 {

std::span<const MemoryPreset> memory_presets() {
  return runtime::kPresets;
}

const MemoryPreset* find_memory_preset(std::string_view name) {
  const auto* const found = std::ranges::find(runtime::kPresets, name, &MemoryPreset::name);
  return found == runtime::kPresets.end() ? nullptr : &*found;
}

const MemoryPreset& nearest_memory_preset(std::uint64_t available_bytes) {
  const MemoryPreset* nearest = runtime::kPresets.data();
  for (const MemoryPreset& preset : runtime::kPresets) {
    if (preset.available_gb > 0.0 &&
        static_cast<double>(available_bytes) >= preset.available_gb * 1e9) {
      nearest = &preset;
    }
  }
  return *nearest;
}

}  // namespace k3

// Sequences of expert requests, and what caches make of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "runtime/expert_slots.h"

namespace k3::test {

struct ExpertRequest {
  std::size_t layer = 0;
  std::vector<std::uint32_t> experts;  // distinct
};

// Requests in the order of a run; layer and expert numbers are below these.
struct ExpertTrace {
  std::size_t layers = 0;
  std::size_t experts = 0;
  std::vector<ExpertRequest> requests;
};

// The choices of the pass over `tokens` positions that ends a trace of others (pairs of layer and
// expert, uint32; layer by layer, within a layer token by token): [layer - 1][token][choice].
using PassChoices = std::vector<std::vector<std::vector<std::uint32_t>>>;

// All passes of the public trace, 5 to 12 positions long. The later ones repeat the earlier ones'
// positions, so that the 12 positions of the last are all that are distinct.
std::vector<PassChoices> read_public_trace(const std::filesystem::path& path);

// The positions of passes, one token at a time.
ExpertTrace one_token_at_a_time(const std::vector<PassChoices>& passes);

// Every pass as one request a layer, the choices of its last token first.
ExpertTrace whole_passes(const std::vector<PassChoices>& passes);

// A made sequence: per layer the best `chosen` of `experts` scores, in order.
struct MadeTrace {
  std::size_t layers = 0;
  std::size_t experts = 0;
  std::size_t chosen = 0;
  std::size_t tokens = 0;
  double popularity = 0.0;  // weight of a score that an expert keeps
  double topic = 0.0;       // of one that fades by `persistence` from token to token
  double persistence = 0.0;
  double noise = 0.0;  // of one that every token draws anew
};

// Deterministic. Popularity, topic and noise are normal variables.
ExpertTrace make_trace(const MadeTrace& made);

// The sizes of `made`; an expert's weight falls with its number in the layer, 1 / n^exponent, and a
// token draws without replacement.
ExpertTrace make_zipf_trace(const MadeTrace& made, double exponent);

// As the routing of the released model: consecutive tokens share about 34% of a layer's experts,
// tokens at distance two about 23%.
inline constexpr MadeTrace kLikeReleased = {.layers = 92,
                                            .experts = 896,
                                            .chosen = 16,
                                            .tokens = 24,
                                            .popularity = 0.5,
                                            .topic = 1.0,
                                            .persistence = 0.75,
                                            .noise = 0.3};

// Every token uses the experts of the token `period` before it; within a period all differ.
ExpertTrace make_cyclic_trace(std::size_t layers,
                              std::size_t chosen,
                              std::size_t tokens,
                              std::size_t period);

// Share of the experts of a request that the request of the same layer `distance` tokens earlier
// named.
double shared_share(const ExpertTrace& trace, std::size_t distance);

// Hits of a replay; the table has to be new.
std::uint64_t replay(runtime::ExpertSlots& table, const ExpertTrace& trace);

std::uint64_t lru_hits(const ExpertTrace& trace, std::size_t slots);

// Belady's optimum: the victim is the expert whose next use is farthest.
std::uint64_t optimal_hits(const ExpertTrace& trace, std::size_t slots);

std::uint64_t asked(const ExpertTrace& trace);

}  // namespace k3::test

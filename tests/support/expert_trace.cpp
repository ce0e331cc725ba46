#include "support/expert_trace.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <list>
#include <numeric>
#include <random>
#include <set>
#include <stdexcept>
#include <unordered_map>
#include <utility>

namespace k3::test {
namespace {

constexpr std::size_t kLayers = 92;  // 1 to 92; layer 0 is dense
constexpr std::size_t kExperts = 896;
constexpr std::size_t kChosen = 16;
constexpr std::size_t kShortestPass = 5;
constexpr std::size_t kLongestPass = 12;

std::vector<std::uint32_t> read_words(const std::filesystem::path& path) {
  std::vector<std::uint32_t> words(std::filesystem::file_size(path) / sizeof(std::uint32_t));
  std::ifstream in(path, std::ios::binary);
  in.read(reinterpret_cast<char*>(words.data()),
          static_cast<std::streamsize>(words.size() * sizeof(std::uint32_t)));
  return words;
}

// The choices of one token of `layer`, from `word` on.
std::vector<std::uint32_t> read_choices(const std::vector<std::uint32_t>& words,
                                        std::size_t word,
                                        std::uint32_t layer) {
  std::vector<std::uint32_t> choices;
  for (std::size_t i = 0; i < kChosen; ++i, word += 2) {
    if (word + 2 > words.size() || words[word] != layer || words[word + 1] >= kExperts) {
      throw std::runtime_error("not the trace that this reader knows");
    }
    choices.push_back(words[word + 1]);
  }
  return choices;
}

std::vector<std::uint32_t> distinct_last_first(
    const std::vector<std::vector<std::uint32_t>>& tokens) {
  std::vector<std::uint32_t> distinct;
  std::vector<bool> named(kExperts);
  for (std::size_t token = tokens.size(); token > 0; --token) {
    for (const std::uint32_t expert : tokens[token - 1]) {
      if (!named[expert]) {
        named[expert] = true;
        distinct.push_back(expert);
      }
    }
  }
  return distinct;
}

std::vector<std::uint64_t> keys_of(const ExpertTrace& trace) {
  std::vector<std::uint64_t> keys;
  for (const ExpertRequest& request : trace.requests) {
    for (const std::uint32_t expert : request.experts) {
      keys.push_back(request.layer * trace.experts + expert);
    }
  }
  return keys;
}

// The indices of the largest scores, in descending order.
std::vector<std::uint32_t> best_of(const std::vector<double>& scores, std::size_t count) {
  std::vector<std::uint32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0U);
  const auto last = order.begin() + static_cast<std::ptrdiff_t>(count);
  std::ranges::partial_sort(order, last, std::greater(),
                            [&](std::uint32_t index) { return scores[index]; });
  order.erase(last, order.end());
  return order;
}

// Loads and uses what the request asks for, as many at a time as the table has slots for.
void serve(runtime::ExpertSlots& table, const ExpertRequest& request) {
  std::vector<std::uint32_t> missing;
  std::vector<std::uint32_t> arrived;  // slots, to be used
  for (const std::uint32_t expert : request.experts) {
    const std::uint32_t slot = table.find(request.layer, expert);
    if (slot == runtime::ExpertSlots::kNone) {
      missing.push_back(expert);
    } else {
      arrived.push_back(slot);
    }
  }
  const auto use_all = [&] {
    std::ranges::for_each(arrived, [&](std::uint32_t slot) { table.used(slot); });
    arrived.clear();
  };
  for (const std::uint32_t expert : missing) {
    std::uint32_t slot = table.assign(request.layer, expert);
    if (slot == runtime::ExpertSlots::kNone) {
      use_all();
      slot = table.assign(request.layer, expert);
    }
    table.loaded(slot);
    arrived.push_back(slot);
  }
  use_all();
}

}  // namespace

std::vector<PassChoices> read_public_trace(const std::filesystem::path& path) {
  const std::vector<std::uint32_t> words = read_words(path);
  std::vector<PassChoices> passes;
  std::size_t word = 0;
  for (std::size_t tokens = kShortestPass; tokens <= kLongestPass; ++tokens) {
    PassChoices& pass = passes.emplace_back(kLayers);
    for (std::size_t layer = 0; layer < kLayers; ++layer) {
      for (std::size_t token = 0; token < tokens; ++token) {
        pass[layer].push_back(read_choices(words, word, static_cast<std::uint32_t>(layer + 1)));
        word += 2 * kChosen;
      }
    }
  }
  if (word != words.size()) {
    throw std::runtime_error("the trace is longer than expected");
  }
  return passes;
}

ExpertTrace one_token_at_a_time(const std::vector<PassChoices>& passes) {
  ExpertTrace trace{kLayers, kExperts, {}};
  for (const PassChoices& pass : passes) {
    for (std::size_t token = 0; token < pass[0].size(); ++token) {
      for (std::size_t layer = 0; layer < pass.size(); ++layer) {
        trace.requests.push_back({layer, pass[layer][token]});
      }
    }
  }
  return trace;
}

ExpertTrace whole_passes(const std::vector<PassChoices>& passes) {
  ExpertTrace trace{kLayers, kExperts, {}};
  for (const PassChoices& pass : passes) {
    for (std::size_t layer = 0; layer < pass.size(); ++layer) {
      trace.requests.push_back({layer, distinct_last_first(pass[layer])});
    }
  }
  return trace;
}

ExpertTrace make_trace(const MadeTrace& made) {
  ExpertTrace trace{made.layers, made.experts, {}};
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  const auto draw = [&](std::vector<double>& values) {
    std::ranges::generate(values, [&] { return normal(random); });
  };
  std::vector<double> popularity(made.layers * made.experts);  // [layer][expert]
  std::vector<double> topic(popularity.size());
  std::vector<double> drawn(popularity.size());
  draw(popularity);
  draw(topic);
  const double renewed = std::sqrt(1.0 - made.persistence * made.persistence);
  std::vector<double> scores(made.experts);
  for (std::size_t token = 0; token < made.tokens; ++token) {
    draw(drawn);
    for (std::size_t i = 0; i < topic.size(); ++i) {
      topic[i] = made.persistence * topic[i] + renewed * drawn[i];
    }
    for (std::size_t layer = 0; layer < made.layers; ++layer) {
      for (std::size_t expert = 0; expert < made.experts; ++expert) {
        const std::size_t i = layer * made.experts + expert;
        scores[expert] =
            made.popularity * popularity[i] + made.topic * topic[i] + made.noise * normal(random);
      }
      trace.requests.push_back({layer, best_of(scores, made.chosen)});
    }
  }
  return trace;
}

ExpertTrace make_zipf_trace(const MadeTrace& made, double exponent) {
  ExpertTrace trace{made.layers, made.experts, {}};
  std::mt19937_64 random(1);
  std::extreme_value_distribution<double> gumbel;  // log weight + Gumbel: a draw by weight
  std::vector<double> scores(made.experts);
  for (std::size_t token = 0; token < made.tokens; ++token) {
    for (std::size_t layer = 0; layer < made.layers; ++layer) {
      for (std::size_t expert = 0; expert < made.experts; ++expert) {
        scores[expert] = gumbel(random) - exponent * std::log(static_cast<double>(expert) + 1.0);
      }
      trace.requests.push_back({layer, best_of(scores, made.chosen)});
    }
  }
  return trace;
}

ExpertTrace make_cyclic_trace(std::size_t layers,
                              std::size_t chosen,
                              std::size_t tokens,
                              std::size_t period) {
  ExpertTrace trace{layers, chosen * period, {}};
  for (std::size_t token = 0; token < tokens; ++token) {
    for (std::size_t layer = 0; layer < layers; ++layer) {
      ExpertRequest request{layer, std::vector<std::uint32_t>(chosen)};
      std::iota(request.experts.begin(), request.experts.end(),
                static_cast<std::uint32_t>(token % period * chosen));
      trace.requests.push_back(std::move(request));
    }
  }
  return trace;
}

double shared_share(const ExpertTrace& trace, std::size_t distance) {
  std::vector<std::vector<const ExpertRequest*>> of_layer(trace.layers);
  std::size_t shared = 0;
  std::size_t all = 0;
  for (const ExpertRequest& request : trace.requests) {
    std::vector<const ExpertRequest*>& seen = of_layer[request.layer];
    if (seen.size() >= distance) {
      const std::vector<std::uint32_t>& earlier = seen[seen.size() - distance]->experts;
      all += request.experts.size();
      shared +=
          static_cast<std::size_t>(std::ranges::count_if(request.experts, [&](std::uint32_t e) {
            return std::ranges::find(earlier, e) != earlier.end();
          }));
    }
    seen.push_back(&request);
  }
  return static_cast<double>(shared) / static_cast<double>(all);
}

std::uint64_t replay(runtime::ExpertSlots& table, const ExpertTrace& trace) {
  for (const ExpertRequest& request : trace.requests) {
    table.begin_request(request.layer, request.experts);
    serve(table, request);
  }
  table.end_request();
  return table.counts().hits;
}

std::uint64_t lru_hits(const ExpertTrace& trace, std::size_t slots) {
  std::list<std::uint64_t> order;  // oldest first
  std::unordered_map<std::uint64_t, std::list<std::uint64_t>::iterator> held;
  std::uint64_t hits = 0;
  for (const std::uint64_t key : keys_of(trace)) {
    const auto found = held.find(key);
    if (found != held.end()) {
      ++hits;
      order.splice(order.end(), order, found->second);
      continue;
    }
    if (order.size() == slots) {
      held.erase(order.front());
      order.pop_front();
    }
    order.push_back(key);
    held[key] = std::prev(order.end());
  }
  return hits;
}

std::uint64_t optimal_hits(const ExpertTrace& trace, std::size_t slots) {
  const std::vector<std::uint64_t> keys = keys_of(trace);
  std::vector<std::size_t> next_use(keys.size(), std::numeric_limits<std::size_t>::max());
  std::unordered_map<std::uint64_t, std::size_t> later;
  for (std::size_t i = keys.size(); i > 0; --i) {
    const auto found = later.find(keys[i - 1]);
    if (found != later.end()) {
      next_use[i - 1] = found->second;
    }
    later[keys[i - 1]] = i - 1;
  }
  std::set<std::pair<std::size_t, std::uint64_t>> order;  // by next use
  std::unordered_map<std::uint64_t, std::size_t> held;    // and that use
  std::uint64_t hits = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto found = held.find(keys[i]);
    if (found != held.end()) {
      ++hits;
      order.erase({found->second, keys[i]});
    } else if (order.size() == slots) {
      held.erase(order.rbegin()->second);
      order.erase(*order.rbegin());
    }
    order.emplace(next_use[i], keys[i]);
    held[keys[i]] = next_use[i];
  }
  return hits;
}

std::uint64_t asked(const ExpertTrace& trace) {
  return keys_of(trace).size();
}

}  // namespace k3::test

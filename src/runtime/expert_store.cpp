#include "runtime/expert_store.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>
#include <utility>

namespace k3::runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostFlights = 64;  // experts read at once
constexpr std::chrono::milliseconds kStopPeriod{20};

// Packed codes and scales of one matrix, dense rows.
Mxfp4Matrix mxfp4_view(const std::byte* packed,
                       const std::byte* scales,
                       std::size_t rows,
                       std::size_t cols) {
  return {reinterpret_cast<const std::uint8_t*>(packed),
          reinterpret_cast<const std::uint8_t*>(scales),
          rows,
          cols,
          cols / 2,
          cols / kMxfp4Group};
}

}  // namespace

ExpertPlaces::ExpertPlaces(const Checkpoint& checkpoint,
                           const WeightFiles& files,
                           const ModelConfig& config)
    : files_(files),
      first_layer_(std::min(config.first_k_dense_replace, config.num_hidden_layers)),
      experts_(config.num_experts) {
  places_.reserve((config.num_hidden_layers - first_layer_) * experts_);
  for (std::size_t layer = first_layer_; layer < config.num_hidden_layers; ++layer) {
    for (std::size_t expert = 0; expert < experts_; ++expert) {
      places_.push_back(place_of(checkpoint.expert(layer, expert), layer));
    }
  }
  for (const std::size_t bytes : bytes_) {
    payload_bytes_ += bytes;
  }
  measure_slots(config);
}

// Of all experts the tensors have the same sizes.
ExpertPlaces::Place ExpertPlaces::place_of(const ExpertExtents& extents, std::size_t layer) {
  Place place = {};
  for (std::size_t i = 0; i < kTensors; ++i) {
    if (extents[i].offset > kOffsetMask) {
      throw Error(ErrorKind::kCheckpoint, {.what = "a shard is larger than 256 TiB",
                                           .where = "layer " + std::to_string(layer)});
    }
    place[i] = std::uint64_t{extents[i].shard} << kShardShift | extents[i].offset;
    bytes_[i] = static_cast<std::size_t>(extents[i].nbytes);
  }
  return place;
}

void ExpertPlaces::measure_slots(const ModelConfig& config) {
  for (std::size_t layer = first_layer_; layer < config.num_hidden_layers; ++layer) {
    for (std::size_t expert = 0; expert < experts_; ++expert) {
      const Layout found = layout(layer, expert);
      std::size_t memory = 0;
      for (std::size_t run = 0; run < found.run_count; ++run) {
        memory += files_.memory_of(found.runs[run].range);
      }
      slot_bytes_ = std::max(slot_bytes_, memory);
    }
  }
}

ExpertPlaces::Layout ExpertPlaces::layout(std::size_t layer, std::size_t expert) const {
  const Place& tensors = place(layer, expert);
  Layout result;
  for (std::size_t i = 0; i < kTensors; ++i) {
    result.sorted[i] = static_cast<std::uint8_t>(i);
  }
  std::ranges::sort(result.sorted, std::ranges::less(), [&](std::uint8_t i) { return tensors[i]; });
  std::uint64_t end = 0;  // of the run so far, with its shard
  for (const std::uint8_t i : result.sorted) {
    if (result.run_count > 0 && tensors[i] == end) {
      Run& run = result.runs[result.run_count - 1];
      run.range.bytes += bytes_[i];
      ++run.tensors;
    } else {
      result.runs[result.run_count++] = {
          files_.in_shard(static_cast<std::uint32_t>(tensors[i] >> kShardShift),
                          tensors[i] & kOffsetMask, bytes_[i]),
          1};
    }
    end = tensors[i] + bytes_[i];
  }
  return result;
}

std::uint64_t ExpertPlaces::order(std::size_t layer, std::size_t expert) const {
  return *std::ranges::min_element(place(layer, expert));
}

StreamedExperts::StreamedExperts(const ExpertPlaces& places,
                                 const WeightFiles& files,
                                 const ModelConfig& config,
                                 std::size_t slots,
                                 StopFlag stop)
    : places_(places),
      config_(config),
      stop_(stop),
      slot_stride_(places.slot_bytes()),
      memory_(slots * slot_stride_, files.alignment()),
      weights_(slots),
      slots_(config.num_hidden_layers, config.num_experts, slots),
      arrived_(config.num_experts) {
  misses_.reserve(config.num_experts);
  for (std::size_t i = 0; i < std::min(slots, kMostFlights); ++i) {
    flights_.push_back(std::make_unique<Flight>(*this, files.request_bytes()));
    flights_.back()->group.reserve(slot_stride_, ExpertPlaces::kTensors);
    idle_.push_back(flights_.back().get());
  }
}

StreamedExperts::~StreamedExperts() {
  stop_reads();
}

// Waits until no read is under way; what was not begun is taken back.
void StreamedExperts::stop_reads() noexcept {
  {
    const std::lock_guard lock(mutex_);
    misses_.clear();
  }
  for (const std::unique_ptr<Flight>& flight : flights_) {
    flight->group.abandon();
  }
  std::unique_lock lock(mutex_);
  arrived_changed_.wait(lock, [&] { return idle_.size() == flights_.size(); });
}

void StreamedExperts::request(std::size_t layer, std::span<const std::uint32_t> experts) {
  if (outstanding_ > 0) {
    // The pass of the last request was given up.
    stop_reads();
  }
  std::unique_lock lock(mutex_);
  for (; arrived_count_ > 0; --arrived_count_) {
    slots_.unpin(slots_.find(layer_, arrived_[arrived_first_]));
    arrived_first_ = (arrived_first_ + 1) % arrived_.size();
  }
  error_ = nullptr;
  layer_ = layer;
  outstanding_ = experts.size();
  slots_.begin_request(layer, experts);
  misses_.clear();
  for (const std::uint32_t expert : experts) {
    const std::uint32_t slot = slots_.find(layer, expert);
    if (slot == ExpertSlots::kNone) {
      misses_.push_back(expert);
    } else {
      slots_.pin(slot);
      arrived_[(arrived_first_ + arrived_count_++) % arrived_.size()] = expert;
    }
  }
  std::ranges::sort(misses_, std::ranges::greater(),
                    [&](std::uint32_t expert) { return places_.order(layer, expert); });
  Flight* const flights = take_misses();
  lock.unlock();
  submit(flights);
}

// With the lock held: flights, in a list, for as many misses as slots and idle flights allow.
StreamedExperts::Flight* StreamedExperts::take_misses() noexcept {
  Flight* first = nullptr;
  Flight** end = &first;
  while (!misses_.empty() && !idle_.empty() && error_ == nullptr) {
    const std::uint32_t slot = slots_.assign(layer_, misses_.back());
    if (slot == ExpertSlots::kNone) {
      break;
    }
    Flight& flight = *idle_.back();
    idle_.pop_back();
    flight.slot = slot;
    flight.expert = misses_.back();
    misses_.pop_back();
    prepare(flight);
    flight.next = nullptr;
    *end = &flight;
    end = &flight.next;
  }
  return first;
}

// Without the lock: a pool that has ended completes a read within the call.
void StreamedExperts::submit(Flight* first) noexcept {
  while (first != nullptr) {
    Flight& flight = *std::exchange(first, first->next);
    flight.group.submit(ErrorKind::kExpertIo, ReadPriority::kExpert);
  }
}

void StreamedExperts::prepare(Flight& flight) noexcept {
  const ExpertPlaces::Layout layout = places_.layout(layer_, flight.expert);
  std::span<std::byte> memory = memory_.span().subspan(flight.slot * slot_stride_, slot_stride_);
  std::array<const std::byte*, ExpertPlaces::kTensors> tensors = {};
  std::size_t sorted = 0;
  for (std::size_t i = 0; i < layout.run_count; ++i) {
    const ExpertPlaces::Run& run = layout.runs[i];
    const std::byte* const payload = flight.group.add(run.range, memory);
    memory = memory.subspan(places_.memory_of(run.range));
    for (std::size_t n = 0; n < run.tensors; ++n, ++sorted) {
      const std::size_t tensor = layout.sorted[sorted];
      tensors[tensor] =
          payload + (places_.offset(layer_, flight.expert, tensor) - run.range.offset);
    }
  }
  const std::size_t inner = config_.moe_intermediate_size;
  const std::size_t latent = config_.routed_expert_hidden_size;
  weights_[flight.slot] = {mxfp4_view(tensors[0], tensors[1], inner, latent),
                           mxfp4_view(tensors[2], tensors[3], latent, inner),
                           mxfp4_view(tensors[4], tensors[5], inner, latent)};
}

void StreamedExperts::Flight::on_complete(ReadGroup& /*group*/, std::exception_ptr error) noexcept {
  experts.finish(*this, std::move(error));
}

void StreamedExperts::finish(Flight& flight, std::exception_ptr error) noexcept {
  std::unique_lock lock(mutex_);
  if (error != nullptr) {
    slots_.failed(flight.slot);
    if (error_ == nullptr) {
      error_ = std::move(error);
      failed_expert_ = flight.expert;
    }
  } else {
    slots_.loaded(flight.slot);
    slots_.pin(flight.slot);
    arrived_[(arrived_first_ + arrived_count_++) % arrived_.size()] = flight.expert;
  }
  idle_.push_back(&flight);
  Flight* const flights = take_misses();
  arrived_changed_.notify_all();
  lock.unlock();
  submit(flights);  // the object may be gone when there are none
}

Error StreamedExperts::failure(std::uint32_t expert, const std::exception_ptr& error) const {
  const std::string where =
      "routed expert " + std::to_string(expert) + " of layer " + std::to_string(layer_);
  try {
    std::rethrow_exception(error);
  } catch (const Error& fault) {
    return {fault.kind(), where + ": " + fault.what()};
  } catch (const std::exception& fault) {
    return {ErrorKind::kExpertIo, where + ": " + fault.what()};
  }
}

model::ExpertLease StreamedExperts::next() {
  const Clock::time_point begin = Clock::now();
  std::unique_lock lock(mutex_);
  if (outstanding_ == 0) {
    throw std::logic_error("more experts are taken than were announced");
  }
  while (arrived_count_ == 0 && error_ == nullptr) {
    arrived_changed_.wait_for(lock, kStopPeriod);
    if (arrived_count_ == 0) {
      check_stop(stop_, "waiting for experts");
    }
  }
  wait_seconds_ += std::chrono::duration<double>(Clock::now() - begin).count();
  if (error_ != nullptr) {
    throw failure(failed_expert_, error_);
  }
  const std::uint32_t expert = arrived_[arrived_first_];
  arrived_first_ = (arrived_first_ + 1) % arrived_.size();
  --arrived_count_;
  --outstanding_;
  return {*this, expert, weights_[slots_.find(layer_, expert)]};
}

void StreamedExperts::release(std::uint32_t expert) noexcept {
  std::unique_lock lock(mutex_);
  const std::uint32_t slot = slots_.find(layer_, expert);
  slots_.unpin(slot);
  slots_.used(slot);
  Flight* const flights = take_misses();
  lock.unlock();
  submit(flights);
}

ExpertCounts StreamedExperts::counts() const {
  const std::lock_guard lock(mutex_);
  return slots_.counts();
}

}  // namespace k3::runtime

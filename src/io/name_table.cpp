#include "io/name_table.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "k3/errors.h"

namespace k3::io {
namespace {

constexpr std::size_t kChunkBytes = std::size_t{1} << 18U;
constexpr std::size_t kFirstSlots = 64;

std::uint32_t hash_of(std::string_view name) {
  return static_cast<std::uint32_t>(std::hash<std::string_view>{}(name));
}

}  // namespace

std::string_view NameTable::name(std::uint32_t id) const {
  const Record& record = records_[id];
  return {chunks_[record.chunk].get() + record.offset, record.length};
}

std::size_t NameTable::probe(std::string_view name, std::uint32_t hash) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = hash & mask;
  while (slots_[slot] != 0) {
    const std::uint32_t id = slots_[slot] - 1;
    if (records_[id].hash == hash && this->name(id) == name) {
      break;
    }
    slot = (slot + 1) & mask;
  }
  return slot;
}

void NameTable::grow() {
  const std::size_t size = std::max(kFirstSlots, slots_.size() * 2);
  slots_.clear();
  slots_.resize(size, 0);
  for (std::uint32_t id = 0; id < records_.size(); ++id) {
    std::size_t slot = records_[id].hash & (size - 1);
    while (slots_[slot] != 0) {
      slot = (slot + 1) & (size - 1);
    }
    slots_[slot] = id + 1;
  }
}

void NameTable::store(std::string_view name, Record& record) {
  if (chunk_free_ < name.size() || chunks_.empty()) {
    chunk_size_ = std::max(kChunkBytes, name.size());
    chunks_.push_back(std::make_unique_for_overwrite<char[]>(chunk_size_));
    chunk_free_ = chunk_size_;
    chunk_bytes_ += chunk_size_;
  }
  record.chunk = static_cast<std::uint32_t>(chunks_.size() - 1);
  record.offset = static_cast<std::uint32_t>(chunk_size_ - chunk_free_);
  record.length = static_cast<std::uint32_t>(name.size());
  std::copy(name.begin(), name.end(), chunks_.back().get() + record.offset);
  chunk_free_ -= name.size();
}

NameTable::Inserted NameTable::insert(std::string_view name) {
  if (name.size() > std::numeric_limits<std::uint32_t>::max() ||
      records_.size() >= std::numeric_limits<std::uint32_t>::max() - 1) {
    throw Error(ErrorKind::kCheckpoint, "too many tensor names for 32-bit ids");
  }
  if ((records_.size() + 1) * 2 > slots_.size()) {
    grow();
  }
  const std::uint32_t hash = hash_of(name);
  const std::size_t slot = probe(name, hash);
  if (slots_[slot] != 0) {
    return {.id = slots_[slot] - 1, .fresh = false};
  }
  Record record{.hash = hash};
  store(name, record);
  const auto id = static_cast<std::uint32_t>(records_.size());
  records_.push_back(record);
  slots_[slot] = id + 1;
  return {.id = id, .fresh = true};
}

std::optional<std::uint32_t> NameTable::find(std::string_view name) const {
  if (slots_.empty()) {
    return std::nullopt;
  }
  const std::uint32_t found = slots_[probe(name, hash_of(name))];
  return found == 0 ? std::nullopt : std::optional(found - 1);
}

std::size_t NameTable::memory_bytes() const {
  return slots_.capacity() * sizeof(slots_[0]) + records_.capacity() * sizeof(Record) +
         chunks_.capacity() * sizeof(chunks_[0]) + chunk_bytes_;
}

}  // namespace k3::io

// Names of many tensors, each with a dense id: found by name in constant time, stored compactly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace k3::io {

// A released checkpoint has 497,220 names of 75 bytes: they lie in chunks, so that growing never
// copies them, and the hash table holds 4 bytes a slot.
class NameTable {
 public:
  struct Inserted {
    std::uint32_t id = 0;
    bool fresh = false;  // false: the name was there before, under `id`
  };

  // Ids count from 0 in order of insertion.
  Inserted insert(std::string_view name);

  [[nodiscard]] std::optional<std::uint32_t> find(std::string_view name) const;
  [[nodiscard]] std::string_view name(std::uint32_t id) const;

  [[nodiscard]] std::size_t size() const { return records_.size(); }

  // Heap bytes held.
  [[nodiscard]] std::size_t memory_bytes() const;

 private:
  struct Record {
    std::uint32_t chunk = 0;
    std::uint32_t offset = 0;
    std::uint32_t length = 0;
    std::uint32_t hash = 0;  // low half, compared before the text
  };

  // Slot of the name, or the empty slot where it belongs.
  [[nodiscard]] std::size_t probe(std::string_view name, std::uint32_t hash) const;
  void grow();
  void store(std::string_view name, Record& record);

  // slots_[i] is id + 1, or 0 for an empty slot; the size is a power of two, at most half full.
  std::vector<std::uint32_t> slots_;
  std::vector<Record> records_;  // [id]
  std::vector<std::unique_ptr<char[]>> chunks_;
  std::size_t chunk_free_ = 0;   // bytes left in the last chunk
  std::size_t chunk_size_ = 0;   // of the last chunk
  std::size_t chunk_bytes_ = 0;  // of all chunks
};

}  // namespace k3::io

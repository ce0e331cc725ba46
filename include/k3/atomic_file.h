// Output files that are either whole or not there.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

#include "k3/errors.h"

namespace k3 {

// Collects an output in a file without a name (where the file system has these, else in a temporary)
// beside its destination and renames it into place on commit().
// Constructing it proves that the destination can be written, before any work is done. Without
// commit() the destination stays as it was. A destination that is no regular file (a pipe, a
// device) is written to directly.
class AtomicFile {
 public:
  // Throws Error(kUsage) naming the file and the reason when it cannot be written.
  explicit AtomicFile(const std::filesystem::path& destination);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  // Throw Error(kIo) naming the file and the reason (a full disk, for example).
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  void commit();

 private:
  std::filesystem::path destination_;  // links resolved
  std::filesystem::path temporary_;    // empty while the file has no name
  bool direct_ = true;                 // written in place: no regular file
  int descriptor_ = -1;
};

}  // namespace k3

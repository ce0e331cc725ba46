// XXH128, the checksum of a run: 32 hexadecimal digits, as `xxhsum -H2` prints them. It finds what
// disks, cables and copies do to bytes; it is no defence against an attacker.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace k3::tools {

class RunChecksum {
 public:
  RunChecksum();
  ~RunChecksum();
  RunChecksum(const RunChecksum&) = delete;
  RunChecksum& operator=(const RunChecksum&) = delete;
  RunChecksum(RunChecksum&&) = delete;
  RunChecksum& operator=(RunChecksum&&) = delete;

  void add(std::span<const std::byte> bytes);

  // Of all bytes since the construction or the last call, which starts anew.
  [[nodiscard]] std::string take();

 private:
  struct State;

  std::unique_ptr<State> state_;
};

[[nodiscard]] std::string checksum_of(std::string_view text);

}  // namespace k3::tools

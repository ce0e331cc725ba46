// XXH128, the checksum of files that the project writes. It finds what disks, cables and copies do to
// bytes; it is no defence against an attacker.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace k3 {

// As it stands in a binary file: big-endian, the canonical form.
using ChecksumBytes = std::array<std::byte, 16>;

class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(const Checksum&) = delete;
  Checksum& operator=(const Checksum&) = delete;
  Checksum(Checksum&&) = delete;
  Checksum& operator=(Checksum&&) = delete;

  void add(std::span<const std::byte> bytes);

  // Of all bytes since the construction or the last call, which starts anew.
  [[nodiscard]] ChecksumBytes take();

 private:
  struct State;

  std::unique_ptr<State> state_;
};

// 32 hexadecimal digits, as `xxhsum -H2` prints them.
[[nodiscard]] std::string checksum_text(const ChecksumBytes& checksum);

[[nodiscard]] ChecksumBytes checksum_of(std::span<const std::byte> bytes);

}  // namespace k3

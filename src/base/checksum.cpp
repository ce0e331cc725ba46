#include "base/checksum.h"

#include <bit>
#include <cstdint>

#define XXH_INLINE_ALL  // NOLINT(readability-identifier-naming): the header is the whole library
#include <xxhash.h>

namespace k3 {

struct Checksum::State {
  XXH3_state_t xxh;
};

Checksum::Checksum() : state_(std::make_unique<State>()) {
  XXH3_128bits_reset(&state_->xxh);
}

Checksum::~Checksum() = default;

void Checksum::add(std::span<const std::byte> bytes) {
  XXH3_128bits_update(&state_->xxh, bytes.data(), bytes.size());
}

ChecksumBytes Checksum::take() {
  XXH128_canonical_t canonical = {};
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state_->xxh));
  XXH3_128bits_reset(&state_->xxh);
  return std::bit_cast<ChecksumBytes>(canonical);
}

std::string checksum_text(const ChecksumBytes& checksum) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : checksum) {
    const auto value = std::to_integer<std::uint8_t>(byte);
    text += kDigits[value >> 4U];
    text += kDigits[value & 15U];
  }
  return text;
}

ChecksumBytes checksum_of(std::span<const std::byte> bytes) {
  Checksum checksum;
  checksum.add(bytes);
  return checksum.take();
}

}  // namespace k3

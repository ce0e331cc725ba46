#include "run_checksum.h"

#include <array>
#include <cstdint>

#define XXH_INLINE_ALL  // NOLINT(readability-identifier-naming): the header is the whole library
#include <xxhash.h>

namespace k3::tools {

struct RunChecksum::State {
  XXH3_state_t xxh;
};

RunChecksum::RunChecksum() : state_(std::make_unique<State>()) {
  XXH3_128bits_reset(&state_->xxh);
}

RunChecksum::~RunChecksum() = default;

void RunChecksum::add(std::span<const std::byte> bytes) {
  XXH3_128bits_update(&state_->xxh, bytes.data(), bytes.size());
}

std::string RunChecksum::take() {
  XXH128_canonical_t canonical = {};
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state_->xxh));
  XXH3_128bits_reset(&state_->xxh);
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : canonical.digest) {
    text += kDigits[byte >> 4U];
    text += kDigits[byte & 15U];
  }
  return text;
}

std::string checksum_of(std::string_view text) {
  RunChecksum checksum;
  checksum.add(std::as_bytes(std::span(text)));
  return checksum.take();
}

}  // namespace k3::tools

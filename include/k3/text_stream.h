// Generated text as it may be shown: whole characters, cut before a stop.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace k3 {

// Bytes in, text out. What push() and finish() return, one after another, are the bytes that came in,
// up to the first stop: bytes that begin a character, or a stop, wait until it is known which.
// The stop that is complete first counts, of those that end at one byte the longest; so the cut does
// not depend on how the bytes were dealt out.
class TextStream {
 public:
  // Empty stops never stop anything.
  explicit TextStream(std::vector<std::string> stops = {});

  // The text that `bytes` completes; nothing once stopped. Valid until the next call.
  std::string_view push(std::string_view bytes);

  // What still waits, be it half a character; the stream begins anew behind it.
  std::string_view finish();

  // The stop that was found, as an index into `stops`. Stays through finish().
  [[nodiscard]] const std::optional<std::size_t>& stopped() const noexcept { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string waiting_;  // came in and was not returned
  std::string shown_;    // returned by the last call
  std::optional<std::size_t> stopped_;
};

}  // namespace k3

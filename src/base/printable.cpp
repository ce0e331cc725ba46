#include "base/printable.h"

namespace k3 {

std::string printable(std::string_view text, std::size_t limit) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string shown;
  for (const char character : text.substr(0, limit)) {
    const auto byte = static_cast<unsigned char>(character);
    if (byte >= 0x20 && byte < 0x7f) {
      shown += character;
    } else {
      shown += "\\x";
      shown += kDigits[byte >> 4U];
      shown += kDigits[byte & 0x0fU];
    }
  }
  if (text.size() > limit) {
    shown += "...";
  }
  return shown;
}

}  // namespace k3

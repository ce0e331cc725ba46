// Text from files, made fit for a message.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace k3 {

// `text` with every byte outside printable ASCII written as \xNN, cut after `limit` bytes: names in
// a hostile header may hold terminal escapes or be megabytes long.
[[nodiscard]] std::string printable(std::string_view text, std::size_t limit = 200);

}  // namespace k3

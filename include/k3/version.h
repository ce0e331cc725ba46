// Version of the library and the program.
#pragma once

namespace k3 {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace k3

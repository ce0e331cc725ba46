// One run of the program.
#pragma once

namespace k3::cli {

// Parses, runs and reports. Returns the exit status; every error has been printed.
[[nodiscard]] int run(int argc, const char* const* argv);

}  // namespace k3::cli

// Ctrl-C: the first one asks the run to stop, the second one ends the process.
#pragma once

#include <atomic>

namespace k3::cli {

// Installs the handler for SIGINT. Returns the flag that the first interrupt sets.
[[nodiscard]] const std::atomic<bool>* install_interrupt_handler();

}  // namespace k3::cli

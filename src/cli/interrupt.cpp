#include "cli/interrupt.h"

#include <unistd.h>

#include <csignal>

#include "k3/errors.h"

namespace k3::cli {
namespace {

std::atomic<bool> stop_requested = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may set it");

void on_interrupt(int /*signal*/) {
  if (stop_requested.exchange(true)) {
    _exit(exit_status(ErrorKind::kInterrupted));
  }
}

}  // namespace

const std::atomic<bool>* install_interrupt_handler() {
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  return &stop_requested;
}

}  // namespace k3::cli

#include "support/run_program.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <stdexcept>

#include <poll.h>

namespace k3::test {
namespace {

// Reads what is there; false at the end of the stream.
bool drain(int descriptor, std::string& text) {
  std::array<char, 4096> buffer = {};
  const ssize_t count = read(descriptor, buffer.data(), buffer.size());
  if (count <= 0) {
    return false;
  }
  text.append(buffer.data(), static_cast<std::size_t>(count));
  return true;
}

pid_t start(const std::vector<std::string>& argv, int out, int err) {
  std::vector<char*> arguments;
  arguments.reserve(argv.size() + 1);
  for (const std::string& argument : argv) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    execv(arguments[0], arguments.data());
    _exit(127);
  }
  return child;
}

}  // namespace

ProgramResult run_program(const std::vector<std::string>& argv,
                          const std::string& interrupt_after) {
  std::array<int, 2> out = {};
  std::array<int, 2> err = {};
  if (pipe2(out.data(), O_CLOEXEC) != 0 || pipe2(err.data(), O_CLOEXEC) != 0) {
    throw std::runtime_error("no pipe");
  }
  const pid_t child = start(argv, out[1], err[1]);
  close(out[1]);
  close(err[1]);
  ProgramResult result;
  std::array<pollfd, 2> streams = {{{out[0], POLLIN, 0}, {err[0], POLLIN, 0}}};
  bool interrupted = interrupt_after.empty();
  while (streams[0].fd >= 0 || streams[1].fd >= 0) {
    poll(streams.data(), streams.size(), -1);
    if (streams[0].fd >= 0 && streams[0].revents != 0 && !drain(out[0], result.out)) {
      streams[0].fd = -1;
    }
    if (streams[1].fd >= 0 && streams[1].revents != 0 && !drain(err[0], result.err)) {
      streams[1].fd = -1;
    }
    if (!interrupted && result.out.find(interrupt_after) != std::string::npos) {
      kill(child, SIGINT);
      interrupted = true;
    }
  }
  close(out[0]);
  close(err[0]);
  int state = 0;
  waitpid(child, &state, 0);
  result.status = WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
  return result;
}

}  // namespace k3::test

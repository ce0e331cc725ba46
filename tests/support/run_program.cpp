#include "support/run_program.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <stdexcept>

#include <poll.h>
#include <pty.h>

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

// What execv() takes; valid as long as argv.
std::vector<char*> arguments_of(const std::vector<std::string>& argv) {
  std::vector<char*> arguments;
  arguments.reserve(argv.size() + 1);
  for (const std::string& argument : argv) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  return arguments;
}

pid_t start(const std::vector<std::string>& argv, int in, int out, int err) {
  const std::vector<char*> arguments = arguments_of(argv);
  const pid_t child = fork();
  if (child == 0) {
    dup2(in, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    execv(arguments[0], arguments.data());
    _exit(127);
  }
  return child;
}

int wait_for(pid_t child) {
  int state = 0;
  waitpid(child, &state, 0);
  return WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
}

ProgramResult run(const std::vector<std::string>& argv,
                  int in,
                  const std::string& interrupt_after) {
  std::array<int, 2> out = {};
  std::array<int, 2> err = {};
  if (pipe2(out.data(), O_CLOEXEC) != 0 || pipe2(err.data(), O_CLOEXEC) != 0) {
    throw std::runtime_error("no pipe");
  }
  const pid_t child = start(argv, in, out[1], err[1]);
  close(in);
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
  result.status = wait_for(child);
  return result;
}

}  // namespace

ProgramResult run_program(const std::vector<std::string>& argv,
                          const std::string& interrupt_after) {
  return run(argv, open("/dev/null", O_RDONLY | O_CLOEXEC), interrupt_after);
}

ProgramResult run_with_input(const std::vector<std::string>& argv, const std::string& input) {
  std::array<int, 2> in = {};
  if (pipe2(in.data(), O_CLOEXEC) != 0 ||
      write(in[1], input.data(), input.size()) != static_cast<ssize_t>(input.size())) {
    throw std::runtime_error("no pipe");
  }
  close(in[1]);
  return run(argv, in[0], "");
}

ProgramResult run_on_terminal(const std::vector<std::string>& argv,
                              const std::vector<Keystrokes>& user) {
  const std::vector<char*> arguments = arguments_of(argv);
  winsize size = {24, 80, 0, 0};
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, &size);
  if (child == 0) {
    setenv("TERM", "xterm", 1);
    execv(arguments[0], arguments.data());
    _exit(127);
  }
  ProgramResult result;
  std::size_t seen = 0;
  auto next = user.begin();
  do {
    while (next != user.end()) {
      const std::size_t found = result.out.find(next->after, seen);
      if (found == std::string::npos) {
        break;
      }
      seen = found + next->after.size();
      if (write(terminal, next->typed.data(), next->typed.size()) < 0) {
        break;
      }
      ++next;
    }
  } while (drain(terminal, result.out));
  close(terminal);
  result.status = wait_for(child);
  return result;
}

}  // namespace k3::test

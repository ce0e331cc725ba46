// Runs a program and keeps what it printed.
#pragma once

#include <string>
#include <vector>

namespace k3::test {

struct ProgramResult {
  int status = -1;  // exit status; 128 + signal when killed by one
  std::string out;
  std::string err;
};

// argv[0] is the path of the program. `interrupt_after`, when not empty, makes the runner send
// SIGINT as soon as standard output holds that text.
[[nodiscard]] ProgramResult run_program(const std::vector<std::string>& argv,
                                        const std::string& interrupt_after = "");

// With `input` on its standard input, a pipe that ends behind it; at most what a pipe holds.
[[nodiscard]] ProgramResult run_with_input(const std::vector<std::string>& argv,
                                           const std::string& input);

// What a user at a terminal does: waits until the screen shows a text, then types.
struct Keystrokes {
  std::string after;
  std::string typed;
};

// On a terminal of 80 columns: all three streams are it, and `out` is all that it was sent. Each entry
// waits for its text behind that of the one before.
[[nodiscard]] ProgramResult run_on_terminal(const std::vector<std::string>& argv,
                                            const std::vector<Keystrokes>& user);

}  // namespace k3::test

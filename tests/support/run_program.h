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

}  // namespace k3::test

// How the tools end: usage and faults become messages and exit statuses.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>

#include <CLI/CLI.hpp>

#include "k3/errors.h"

namespace k3::tools {

// Parses the command line, calls run() and returns the exit status: 0, 2 for usage, that of an Error,
// 1 for anything else, standard output that cannot be written among it.
template <typename Run>
int tool_main(CLI::App& app, int argc, char** argv, const Run& run) {
  try {
    app.parse(argc, argv);
    run();
    std::cout.flush();
    if (!std::cout || std::fflush(stdout) != 0) {
      throw Error(ErrorKind::kIo, "standard output cannot be written");
    }
    return EXIT_SUCCESS;
  } catch (const CLI::ParseError& fault) {
    return app.exit(fault) == 0 ? EXIT_SUCCESS : exit_status(ErrorKind::kUsage);
  } catch (const Error& fault) {
    std::cerr << app.get_name() << ": " << fault.what() << "\n";
    return exit_status(fault.kind());
  } catch (const std::exception& fault) {
    std::cerr << app.get_name() << ": " << fault.what() << "\n";
    return EXIT_FAILURE;
  }
}

}  // namespace k3::tools

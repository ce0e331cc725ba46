#include "cli/run.h"

int main(int argc, char** argv) {
  return k3::cli::run(argc, argv);
}

#!/usr/bin/env bash
# Layering: each folder of src and include includes only what its layer may see.
#
#   cli       k3/ and itself                           runtime   every layer but cli
#   model     base, kernels                            kernels | io | text   base
#   base      nothing of ours                          include/k3   std and k3/ only
#
# Every layer may include k3/. Besides: heavy third-party headers stay in .cpp files, OpenMP in
# src/base/parallel.h, threads in runtime, files and the operating system out of model and kernels.
# usage: layering.sh SOURCE_DIR | --self-test
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

check() {
  local root=$1 files
  files=$(find_cpp "$root" include src tools tests benchmarks)
  if [ -z "$files" ]; then
    fail "no C++ file below $root"
  fi
  echo "layering: $(wc -l <<<"$files") C++ files" >&2
  code_lines "$root" <<<"$files" | awk '
    BEGIN {
      sees["include"] = "k3"
      sees["cli"] = "k3 cli"
      sees["base"] = "k3 base"
      sees["kernels"] = "k3 base kernels"
      sees["io"] = "k3 base io"
      sees["text"] = "k3 base text"
      sees["model"] = "k3 base kernels model"
      sees["runtime"] = "k3 base kernels io text model runtime"
    }

    function report(message) { print path ":" line ": " message }

    function layer_of(path, part) {
      split(path, part, "/")
      return part[1] == "src" ? (part[3] == "" ? "no folder" : part[2]) : part[1]
    }

    function may_see(layer, target) { return index(" " sees[layer] " ", " " target " ") > 0 }

    function check_ours(name, target) {
      target = name
      if (!sub(/\/.*/, "", target) || name ~ /\.\./) {
        report("\"" name "\": write includes of ours as \"layer/file.h\" or \"k3/file.h\"")
      } else if (!may_see(layer, target)) {
        report(layer " must not see " target " (\"" name "\")")
      }
    }

    function check_others(name) {
      if (name ~ /^k3\//) { report("<" name ">: headers of ours go in quotes") }
      if (name ~ /^(CLI|nlohmann)\// || name ~ /^simdjson/) {
        if (path !~ /\.(cpp|cc)$/) { report("<" name "> only in .cpp files: it is slow to compile") }
        if (layer ~ /^(include|base|kernels|model)$/) { report(layer " must not see <" name ">") }
        if (name ~ /^CLI\// && layer != "cli") { report(layer " must not see <" name ">") }
      } else if (layer == "include" && name !~ /^[a-z_]+$/) {
        report("include/k3 uses standard headers only, not <" name ">")
      } else if (layer == "cli" && name !~ /^([a-z_]+|signal\.h|unistd\.h|histedit\.h|poll\.h|termios\.h|sys\/ioctl\.h)$/) {
        report("cli must not see <" name ">")
      }
      if (layer ~ /^(kernels|model)$/ && name ~ /^(fstream|filesystem|fcntl\.h|unistd\.h|sys\/.*)$/) {
        report(layer " knows no files: <" name ">")
      }
      if (layer != "runtime" && name ~ /^(thread|future|pthread\.h)$/) {
        report("threads start only in runtime: <" name ">")
      }
    }

    {
      path = $0
      sub(/:.*/, "", path)
      rest = substr($0, length(path) + 2)
      line = rest
      sub(/:.*/, "", line)
      code = substr(rest, length(line) + 2)
      engine = path ~ /^(src|include)\//
      layer = engine ? layer_of(path) : ""

      if (path != "src/base/parallel.h" && code ~ /#[ \t]*pragma[ \t]+omp|_Pragma[ \t]*\([ \t]*"omp|[<"]omp\.h[>"]/) {
        report("OpenMP appears only in src/base/parallel.h")
      }
      if (!engine) { next }
      if (!(layer in sees)) {
        if (path != last_path) { report("src/<layer>/ expected, " layer " is no layer") }
        last_path = path
        next
      }
      if (layer != "runtime" && code ~ /std::(thread|jthread|async)[^_a-zA-Z0-9]|pthread_/) {
        report("threads start only in runtime")
      }
      if (code !~ /^[ \t]*#[ \t]*include/) { next }
      if (match(code, /"[^"]+"/)) {
        check_ours(substr(code, RSTART + 1, RLENGTH - 2))
      } else if (match(code, /<[^>]+>/)) {
        check_others(substr(code, RSTART + 1, RLENGTH - 2))
      } else {
        report("an include that names no file cannot be checked")
      }
    }'
}

# expect_line REPORT PATH LINE...: the clean tree plus this one file is reported.
expect_line() {
  local report=$1 path=$2 kept=$SCRATCH/kept
  shift 2
  rm -f "$kept"
  if [ -e "$SAMPLE/$path" ]; then
    cp "$SAMPLE/$path" "$kept"
  fi
  sample_file "$path" "$@"
  expect_report "$path:1: $report" "$SAMPLE"
  rm "$SAMPLE/$path"
  if [ -e "$kept" ]; then
    cp "$kept" "$SAMPLE/$path"
  fi
}

self_test() {
  sample_file include/k3/engine.h '#include <string>' '#include "k3/errors.h"'
  sample_file src/cli/main.cpp '#include <CLI/CLI.hpp>' '#include <csignal>' '#include <signal.h>' \
    '#include <nlohmann/json.hpp>' '#include "k3/engine.h"'
  sample_file src/base/parallel.h '#include <omp.h>' '#pragma omp parallel' '#include "base/dtype.h"'
  sample_file src/kernels/products.cpp '#include <immintrin.h>' '#include "base/dtype.h"' \
    '// std::thread, #pragma omp and "io/file.h" in a comment do no harm' \
    '/* nor does' '#include "runtime/plan.h"' '*/ int n = 1'"'"'000; // "'
  sample_file src/io/reader.cpp '#include <simdjson.h>' '#include <fcntl.h>' '#include "io/reader.h"'
  sample_file src/model/layer.cpp '#include "kernels/products.h"' '#include "model/layer.h"'
  sample_file src/runtime/tape.cpp '#include <thread>' '#include "io/reader.h"' \
    '#include "text/tokenizer.h"' '#include "model/layer.h"' 'std::thread reader;'
  sample_file tests/runtime/tape_test.cpp '#include <thread>' '#include "io/reader.h"'
  expect_clean "$SAMPLE"

  expect_line 'cli must not see base' src/cli/main.cpp '#include "base/dtype.h"'
  expect_line 'cli must not see runtime' src/cli/report.h '#include "runtime/plan.h"'
  expect_line 'cli must not see <fcntl.h>' src/cli/main.cpp '#include <fcntl.h>'
  expect_line 'base must not see kernels' src/base/dtype.h '#include "kernels/products.h"'
  expect_line 'kernels must not see io' src/kernels/products.cpp '#include "io/reader.h"'
  expect_line 'io must not see text' src/io/reader.h '#include "text/tokenizer.h"'
  expect_line 'text must not see kernels' src/text/bpe.cpp '#include "kernels/products.h"'
  expect_line 'model must not see io' src/model/layer.cpp '# include "io/reader.h"  // needed'
  expect_line 'model must not see runtime' src/model/layer.cpp '/* x */ #include "runtime/plan.h"'
  expect_line 'runtime must not see cli' src/runtime/plan.cpp '#include "cli/report.h"'
  expect_line 'include must not see base' include/k3/engine.h '#include "base/dtype.h"'
  expect_line 'include/k3 uses standard headers only' include/k3/engine.h '#include <sys/mman.h>'
  expect_line '<nlohmann/json.hpp> only in .cpp' src/io/json.h '#include <nlohmann/json.hpp>'
  expect_line '<CLI/CLI.hpp> only in .cpp' src/cli/options.h '#include <CLI/CLI.hpp>'
  expect_line 'io must not see <CLI/CLI.hpp>' src/io/reader.cpp '#include <CLI/CLI.hpp>'
  expect_line 'model must not see <nlohmann' src/model/layer.cpp '#include <nlohmann/json.hpp>'
  expect_line 'model knows no files' src/model/layer.cpp '#include <fstream>'
  expect_line '"dtype.h": write includes' src/base/dtype.cpp '#include "dtype.h"'
  expect_line '"../io/file.h": write includes' src/model/layer.cpp '#include "../io/file.h"'
  expect_line '<k3/errors.h>: headers of ours' src/base/errors.cpp '#include <k3/errors.h>'
  expect_line 'an include that names no file' src/base/errors.cpp '#include K3_HEADER'
  expect_line 'src/<layer>/ expected, util is no layer' src/util/misc.h 'int x;'
  expect_line 'src/<layer>/ expected' src/main.cpp 'int main() {}'
  expect_line 'OpenMP appears only' src/kernels/products.cpp '#pragma omp parallel for'
  expect_line 'OpenMP appears only' src/base/other.h '  _Pragma("omp simd")'
  expect_line 'OpenMP appears only' tests/base/dtype_test.cpp '#include <omp.h>'
  expect_line 'threads start only in runtime' src/io/reader.cpp '#include <thread>'
  expect_line 'threads start only in runtime' src/base/host.cpp 'pthread_create(nullptr);'
  expect_line 'threads start only in runtime' src/cli/main.cpp 'std::jthread watcher;'
}

policy_main "$@"

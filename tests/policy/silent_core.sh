#!/usr/bin/env bash
# Silent core: the library reports by exceptions. It never prints, exits or aborts.
#
# Looks twice. The undefined symbols of the library's own objects show every call that the compiler
# left in them, whichever header it came from. The source shows std::terminate and traps written by
# hand: the symbol of the former does not count, because the compiler itself emits that call for
# noexcept functions and <thread>, and a trap leaves no symbol.
#
# simdjson and nlohmann_json need no allowance. assert() is allowed where the build keeps it, that
# is, in every build but Release.
# usage: silent_core.sh SOURCE_DIR LIBRARY BUILD_TYPE | --self-test CXX
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

NM=${NM:-nm}

# One extended regular expression a line, matched against whole symbols.
readonly FORBIDDEN_SYMBOLS='
_?exit|_Exit|quick_exit|abort|raise|kill|tgkill|pthread_kill|pthread_exit
(__)?v?printf(_chk)?|v?wprintf|(__)?v?dprintf(_chk)?|puts|putchar(_unlocked)?|putwchar
stdout|stderr
perror|psignal|error|error_at_line|v?(err|warn)x?
(__)?v?syslog(_chk)?
_ZSt4cout|_ZSt4cerr|_ZSt4clog|_ZSt5wcout|_ZSt5wcerr|_ZSt5wclog
'
readonly ASSERTIONS='__assert_fail|_ZSt21__glibcxx_assert_failPKciS0_S0_'
readonly FORBIDDEN_CODE='(^|[^_a-zA-Z0-9.>])(terminate|set_terminate|__builtin_trap|__builtin_abort|abort|_?exit|_Exit|quick_exit)[ \t]*\(|std::(cout|cerr|clog|wcout|wcerr|wclog)|<iostream>|<syslog\.h>'

check() {
  local root=$1 library=$2 build_type=$3 forbidden
  forbidden=$(tr '\n' '|' <<<"$FORBIDDEN_SYMBOLS" | sed 's/^|*//; s/|*$//')
  if [ "$build_type" = Release ]; then
    forbidden="$forbidden|$ASSERTIONS"
  fi
  local symbols
  symbols=$("$NM" -A --undefined-only "$library") || fail "nm cannot read $library"
  if [ -z "$symbols" ]; then
    fail "$library refers to nothing: it is not the library"
  fi
  local objects
  objects=$(awk '{ sub(/:[^:]*$/, "") } !seen[$0]++ { ++n } END { print n }' <<<"$symbols")
  echo "silent core: $objects objects, build type ${build_type:-unknown}" >&2
  # "library.a:object.o:                 U symbol", the symbol perhaps with @VERSION
  awk -v forbidden="^($forbidden)\$" '
    {
      symbol = $NF
      sub(/@.*/, "", symbol)
      if (symbol ~ forbidden) {
        object = $0
        sub(/: +[A-Za-z] [^ ]*$/, "", object)
        sub(/.*:/, "", object)
        print object ": refers to " symbol
      }
    }' <<<"$symbols"

  find_cpp "$root" include src | grep -v '^src/cli/' | code_lines "$root" |
    awk -v forbidden="$FORBIDDEN_CODE" '
      {
        code = $0
        sub(/^[^:]*:[0-9]*:/, "", code)
        if (code ~ forbidden) { print $0 }
      }'
}

# compile NAME CODE...: an object of the sample library.
compile() {
  local name=$1
  shift
  printf '%s\n' "$@" >"$SCRATCH/$name.cpp"
  "$CXX" -std=c++20 -O2 -DNDEBUG -fPIC -c "$SCRATCH/$name.cpp" -o "$SCRATCH/$name.o"
}

# Every forbidden call once, in one object, and the symbols that must be reported for it.
readonly LOUD_CODE='
#include <cstdio>
#include <cstdlib>
#include <err.h>
#include <iostream>
#include <signal.h>
#include <syslog.h>
#include <unistd.h>
void f(int n);
void f(int n) {
  switch (n) {
    case 1: std::printf("%d", n); break;
    case 2: std::puts("x"); break;
    case 3: std::fflush(stdout); break;
    case 4: std::fprintf(stderr, "%d", n); break;
    case 5: dprintf(2, "%d", n); break;
    case 6: std::perror("x"); break;
    case 7: syslog(LOG_ERR, "%d", n); break;
    case 8: warn("%d", n); break;
    case 9: std::cout << n; break;
    case 10: std::cerr << n; break;
    case 11: std::clog << n; break;
    case 12: raise(SIGABRT); break;
    case 13: std::exit(n);
    case 14: _exit(n);
    case 15: std::_Exit(n);
    case 16: std::quick_exit(n);
    default: std::abort();
  }
}'
readonly LOUD_SYMBOLS=(printf puts stdout stderr dprintf perror syslog warn
  _ZSt4cout _ZSt4cerr _ZSt4clog raise exit _exit _Exit quick_exit abort)

expect_code() {
  sample_file src/base/bad.cpp "$1"
  expect_report "src/base/bad.cpp:1:" "$SAMPLE" "$SCRATCH/good.a" Release
}

self_test() {
  CXX=$1
  sample_file src/cli/main.cpp '#include <iostream>' 'int main() { std::cout << 1; std::exit(0); }'
  sample_file src/base/good.cpp 'int exit_status(int kind); // never exit(1), abort() or std::cerr'
  compile good '#include <cstdio>' '#include <stdexcept>' '#include <string>' '#include <thread>' \
    '#include <vector>' \
    'void spare(std::vector<int>& v) noexcept { v.push_back(1); }' \
    'void start() { std::thread t([] {}); t = std::thread([] {}); t.join(); }' \
    'std::string text(double x) {' \
    '  char buffer[64];' \
    '  if (x < 0) { throw std::runtime_error("negative"); }' \
    '  std::snprintf(buffer, sizeof(buffer), "%g", x);' \
    '  return buffer;' \
    '}'
  compile asserting '#undef NDEBUG' '#include <cassert>' 'void f(int n) { assert(n > 0); }'
  ar rc "$SCRATCH/good.a" "$SCRATCH/good.o"
  ar rc "$SCRATCH/asserting.a" "$SCRATCH/good.o" "$SCRATCH/asserting.o"
  expect_clean "$SAMPLE" "$SCRATCH/good.a" Release
  expect_clean "$SAMPLE" "$SCRATCH/asserting.a" RelWithDebInfo
  expect_report 'asserting.o: refers to __assert_fail' "$SAMPLE" "$SCRATCH/asserting.a" Release

  local symbol
  compile loud "$LOUD_CODE"
  ar rc "$SCRATCH/loud.a" "$SCRATCH/good.o" "$SCRATCH/loud.o"
  for symbol in "${LOUD_SYMBOLS[@]}"; do
    expect_report "loud.o: refers to $symbol" "$SAMPLE" "$SCRATCH/loud.a" Release
  done

  expect_code 'void f() { std::terminate(); }'
  expect_code 'void f() { __builtin_trap(); }'
  expect_code 'void f() { if (x) exit (1); }'
  expect_code '#include <iostream>'
  expect_code 'std::ostream& log = std::clog;'
}

policy_main "$@"

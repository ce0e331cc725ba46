# Shared by the policy tests. Sourced, never run.
#
# A policy script defines check(), which prints one line per violation ("file:line: message") and
# describes on standard error what it looked at, and self_test(), which shows on small samples that
# check() accepts what is right and reports each thing that is wrong. It ends with
#   policy_main "$@"
# called as `script.sh ARGUMENTS OF check` or `script.sh --self-test ARGUMENTS OF self_test`.
# Exit status: 0 clean, 1 violations or a self-test that fails, 77 cannot be judged here.
# shellcheck shell=bash

set -euo pipefail
export LC_ALL=C

readonly POLICY_SKIPPED=77

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

skip() {
  echo "SKIPPED: $*" >&2
  exit "$POLICY_SKIPPED"
}

# An empty folder of this run, removed at its end.
SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/k3 policy.XXXXXX")
trap 'rm -rf "$SCRATCH"' EXIT

# find_files ROOT FOLDER... -- FIND-TESTS: paths below ROOT, one a line, sorted. Folders may be missing.
find_files() {
  local root=$1 folders=()
  shift
  while [ "$1" != -- ]; do
    if [ -e "$root/$1" ]; then
      folders+=("$1")
    fi
    shift
  done
  shift
  if [ "${#folders[@]}" -gt 0 ]; then
    (cd "$root" && find "${folders[@]}" -type f '(' "$@" ')' | sort)
  fi
}

# find_cpp ROOT FOLDER...: the C++ files below these folders.
find_cpp() {
  find_files "$@" -- -name '*.h' -o -name '*.hpp' -o -name '*.inc' -o -name '*.cpp' -o -name '*.cc'
}

# code_lines ROOT < PATHS: "path:line:code" for every line that holds code, comments taken out.
# Quotes in string and character literals are followed within a line.
code_lines() {
  local root=$1 paths
  mapfile -t paths
  if [ "${#paths[@]}" -eq 0 ]; then
    return
  fi
  (cd "$root" && awk '
    FNR == 1 { in_comment = 0 }
    {
      code = ""
      quote = ""
      length_of_line = length($0)
      for (i = 1; i <= length_of_line; ++i) {
        c = substr($0, i, 1)
        pair = substr($0, i, 2)
        if (in_comment) {
          if (pair == "*/") { in_comment = 0; ++i; code = code " " }
        } else if (quote != "") {
          code = code c
          if (c == "\\") { code = code substr($0, ++i, 1) } else if (c == quote) { quote = "" }
        } else if (pair == "//") {
          break
        } else if (pair == "/*") {
          in_comment = 1
          ++i
        } else {
          # A quote between digits separates thousands: 1'"'"'000.
          if (c == "\"" || (c == "'"'"'" && code !~ /[0-9A-Fa-f]$/)) { quote = c }
          code = code c
        }
      }
      if (code ~ /[^ \t]/) { print FILENAME ":" FNR ":" code }
    }' "${paths[@]}")
}

# The sample tree that a self-test builds and checks.
SAMPLE=$SCRATCH/sample

# sample_file PATH LINE...: writes a file of the sample tree.
sample_file() {
  mkdir -p "$(dirname "$SAMPLE/$1")"
  local path=$SAMPLE/$1
  shift
  printf '%s\n' "$@" >"$path"
}

# expect_clean CHECK-ARGUMENTS...: check() finds nothing.
expect_clean() {
  local found
  found=$(check "$@" 2>/dev/null) || fail "check() ended with a failure on a clean sample"
  if [ -n "$found" ]; then
    fail "a clean sample was reported: $found"
  fi
}

# expect_report TEXT CHECK-ARGUMENTS...: check() reports a line that contains TEXT.
expect_report() {
  local text=$1 found
  shift
  found=$(check "$@" 2>/dev/null) || fail "check() ended with a failure instead of a report"
  if ! grep -qF -- "$text" <<<"$found"; then
    fail "expected a report with '$text', found: ${found:-nothing}"
  fi
  SELF_TESTED=$((SELF_TESTED + 1))
}

SELF_TESTED=0

policy_main() {
  if [ "${1:-}" = --self-test ]; then
    shift
    self_test "$@"
    if [ "$SELF_TESTED" -eq 0 ]; then
      fail "the self-test reported nothing: it proves nothing"
    fi
    echo "self-test passed: $SELF_TESTED kinds of violation are found"
    return
  fi
  local found
  found=$(check "$@") || exit "$?"
  if [ -n "$found" ]; then
    echo "$found"
    fail "$(wc -l <<<"$found") violation(s)"
  fi
}

#!/usr/bin/env bash
# Repository: what is tracked is small, belongs where it is and names no machine.
#
#   * the top level holds the known files and folders only
#   * no file over 1 MB but in tests/fixtures
#   * no path of somebody's machine in any text
# usage: repository.sh SOURCE_DIR | --self-test
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly TOP_FOLDERS=' .ci benchmarks docs include scripts src tests tools '
readonly TOP_FILES=' CMakeLists.txt CMakePresets.json LICENSE Makefile README.md '
readonly LARGEST=1000000

# Home folders and workplaces. In pieces, so that this file does not report itself.
readonly MACHINE_PATH='(^|[^]A-Za-z0-9_.~})-])/(home|root|work|tmp/studio)''/'

in_git() { git -c safe.directory='*' -C "$1" "${@:2}"; }

check() {
  local root=$1 path tracked=$SCRATCH/tracked
  if [ "$(in_git "$root" rev-parse --show-prefix 2>/dev/null || echo none)" != '' ]; then
    skip "not the top of a git checkout: nothing tells which files belong to the project"
  fi
  in_git "$root" ls-files -z >"$tracked"
  if ! [ -s "$tracked" ]; then
    fail "no tracked file in $root"
  fi
  echo "repository: $(tr -cd '\0' <"$tracked" | wc -c) tracked files" >&2

  # The top level: folders, and files that are known or begin with a dot.
  local top
  while IFS= read -r -d '' path; do
    top=${path%%/*}
    if [ "$top" != "$path" ]; then
      [[ $TOP_FOLDERS == *" $top "* ]] || echo "$top/"
    else
      [[ $TOP_FILES == *" $top "* || $top == .* ]] || echo "$top"
    fi
  done <"$tracked" | sort -u | sed 's/$/: does not belong to the top level/'

  local size
  while IFS= read -r -d '' path; do
    if [ -f "$root/$path" ] && [[ $path != tests/fixtures/* ]]; then
      size=$(stat -c %s "$root/$path")
      if [ "$size" -gt "$LARGEST" ]; then
        echo "$path: $size bytes, at most $LARGEST outside tests/fixtures"
      fi
    fi
  done <"$tracked"

  in_git "$root" grep -nIE "$MACHINE_PATH" | sed 's/$/   <- path of a machine/' || true
}

# expect_file REPORT PATH LINE...: this tracked file on top of the clean tree is reported.
expect_file() {
  local report=$1 path=$2
  shift 2
  sample_file "$path" "$@"
  git -C "$SAMPLE" add -A
  expect_report "$report" "$SAMPLE"
  rm "$SAMPLE/$path"
  git -C "$SAMPLE" add -A
}

self_test() {
  if ! command -v git >/dev/null; then
    skip "git is not installed"
  fi
  # The sample is a repository of its own, whatever the caller's environment says.
  unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE
  local home='/ho''me/someone' megabyte
  megabyte=$(head -c 1000001 /dev/zero | tr '\0' x)
  git init -q "$SAMPLE"
  sample_file CMakeLists.txt x
  sample_file .gitignore /build/
  sample_file .ci/run x
  # shellcheck disable=SC2016  # ${dir} stays as it is
  sample_file src/base/a.cpp '#include "src/works/x.h" // a/root/b, /workshop/'
  sample_file tests/fixtures/large.json "$megabyte"
  sample_file build/release/any.txt "$home/ignored"
  sample_file notes.txt "untracked $home/x"
  git -C "$SAMPLE" add CMakeLists.txt .gitignore .ci src tests
  expect_clean "$SAMPLE"
  rm "$SAMPLE/notes.txt"

  expect_file 'notes.txt: does not belong to the top level' notes.txt x
  expect_file 'experiments/: does not belong to the top level' experiments/x.cpp x
  expect_file '.vscode/: does not belong to the top level' .vscode/settings.json x
  expect_file 'docs/large.txt: 1000002 bytes' docs/large.txt "$megabyte"
  expect_file 'docs/a b.md:2:' 'docs/a b.md' x "see $home/models"
  expect_file 'scripts/x.sh:1:' scripts/x.sh 'cd "/wo''rk/main"'
  expect_file 'src/base/x.cpp:1:' src/base/x.cpp '// /ro''ot/.cache'
  expect_file 'tests/fixtures/x.json:1:' tests/fixtures/x.json '{"path": "/tmp/stu''dio/x"}'
}

policy_main "$@"

#!/usr/bin/env bash
# File length: at most 600 lines; C++ over 400 lines says why; README.md stays under 250.
#
# The reason is a line "// Over 400 lines because ..." in the file itself. The length of functions
# is the business of clang-tidy.
# usage: file_length.sh SOURCE_DIR | --self-test
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly FOLDERS=(include src tools tests benchmarks scripts docs .ci)

check() {
  local root=$1 cpp scripts
  cpp=$(find_cpp "$root" "${FOLDERS[@]}")
  scripts=$(find_files "$root" "${FOLDERS[@]}" CMakeLists.txt Makefile -- -name '*.sh' -o \
    -name '*.py' -o -name '*.cmake' -o -name CMakeLists.txt -o -name Makefile -o -path .ci/run)
  if [ -z "$cpp" ] || [ -z "$scripts" ]; then
    fail "no C++ file or no script below $root"
  fi
  echo "file length: $(wc -l <<<"$cpp") C++ files, $(wc -l <<<"$scripts") scripts" >&2
  local path lines
  while IFS= read -r path; do
    lines=$(wc -l <"$root/$path")
    if [ "$lines" -gt 600 ]; then
      echo "$path: $lines lines, at most 600: split it"
    elif [ "$lines" -gt 400 ] && ! grep -qE '^// Over 400 lines because [^ ]+' "$root/$path"; then
      echo "$path: $lines lines: over 400 wants a line '// Over 400 lines because ...'"
    fi
  done <<<"$cpp"
  while IFS= read -r path; do
    lines=$(wc -l <"$root/$path")
    if [ "$lines" -gt 600 ]; then
      echo "$path: $lines lines, at most 600: split it"
    fi
  done <<<"$scripts"
  if [ -e "$root/README.md" ]; then
    lines=$(wc -l <"$root/README.md")
    if [ "$lines" -ge 250 ]; then
      echo "README.md: $lines lines, must stay under 250: move depth to docs"
    fi
  else
    echo "file length: no README.md yet" >&2
  fi
}

# sample_lines PATH COUNT [FIRST-LINE]
sample_lines() {
  local line=${3:-}
  mkdir -p "$(dirname "$SAMPLE/$1")"
  { if [ -n "$line" ]; then echo "$line"; fi; yes x; } 2>/dev/null | head -n "$2" >"$SAMPLE/$1" || true
}

# expect_lines REPORT PATH COUNT [FIRST-LINE]: this file on top of the clean tree is reported.
expect_lines() {
  sample_lines "$2" "$3" "${4:-}"
  expect_report "$2: $3 lines$1" "$SAMPLE"
  rm "$SAMPLE/$2"
}

self_test() {
  local reason='// Over 400 lines because one table covers every format.'
  sample_lines CMakeLists.txt 600
  sample_lines src/base/short.cpp 400
  sample_lines src/base/long.h 600 "$reason"
  sample_lines tests/fixtures/data.json 5000
  sample_lines README.md 249
  expect_clean "$SAMPLE"

  expect_lines ': over 400' src/base/long.cpp 401
  expect_lines ': over 400' tests/base/x_test.cpp 600 '// Over 400 lines because'
  expect_lines ', at most 600' include/k3/long.h 601 "$reason"
  expect_lines ', at most 600' tools/pack.cpp 700
  expect_lines ', at most 600' benchmarks/bench.cc 700
  expect_lines ', at most 600' scripts/test.sh 601
  expect_lines ', at most 600' tools/reference/model.py 601
  expect_lines ', at most 600' src/cmake/Options.cmake 601
  expect_lines ', at most 600' tests/CMakeLists.txt 601
  expect_lines ', at most 600' .ci/run 601
  expect_lines ', at most 600' Makefile 601
  expect_lines ', must stay under 250' README.md 250
}

policy_main "$@"

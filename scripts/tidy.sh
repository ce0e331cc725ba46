#!/usr/bin/env bash
# clang-tidy over the translation units of the project, as many at a time as there are cores.
#
# usage: scripts/tidy.sh [--since REVISION]
#
# With --since only the layers that differ from REVISION are looked at; all of them when what
# everybody includes differs (include/k3, src/base, build files, .clang-tidy). A layer is src/X,
# tests/X, tools or benchmarks; a header is judged through the .cpp files of its layer.
set -euo pipefail

cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
readonly BUILD=build/tidy
readonly FOUND=build/tidy.found
readonly EVERYBODYS='^(include/k3|src/base|tests/support)/|(^|/)CMakeLists\.txt$|\.cmake$|^CMakePresets\.json$|(^|/)\.clang-tidy$'

usage() {
  sed -n '4s/^# //p' "${BASH_SOURCE[0]}" >&2
  exit 2
}

since=''
case $# in
  0) ;;
  2) if [ "$1" = --since ]; then since=$2; else usage; fi ;;
  *) usage ;;
esac

# layers_since REVISION: one regular expression that matches the files to look at.
layers_since() {
  local changed
  changed=$(git diff --name-only "$1" -- && git ls-files --others --exclude-standard)
  if grep -qE "$EVERYBODYS" <<<"$changed"; then
    echo '.'
  else
    sed -nE 's,^((src|tests)/[^/]+|tools|benchmarks)/.*\.(cpp|h)$,^\1/,p' <<<"$changed" |
      sort -u | paste -sd '|'
  fi
}

# tidy_file PATH: prints what clang-tidy says only when it finds something.
tidy_file() {
  local output options=(-p "$BUILD" --quiet '--warnings-as-errors=*')
  options+=(--extra-arg=-Wno-unknown-warning-option) # g++ knows other warnings than clang
  if ! output=$(clang-tidy "${options[@]}" "$1" 2>&1); then
    printf '%s\n' "$output" | grep -vE '^[0-9]+ warnings? generated' | tee -a "$FOUND"
    return 1
  fi
}
export -f tidy_file
export BUILD FOUND

mkdir -p build
: >"$FOUND"
if ! cmake --preset tidy >build/tidy.log 2>&1; then
  tail -n 40 build/tidy.log >&2
  exit 1
fi
mapfile -t all < <(sed -n "s,^ *\"file\": \"$PWD/\(.*\)\".*,\1,p" "$BUILD/compile_commands.json" | sort -u)
if [ "${#all[@]}" -eq 0 ]; then
  echo "tidy: $BUILD/compile_commands.json names no file of this checkout" >&2
  exit 1
fi

wanted=.
if [ -n "$since" ]; then
  git rev-parse --quiet --verify "$since^{commit}" >/dev/null ||
    { echo "tidy: $since is no revision of this checkout" >&2 && exit 2; }
  wanted=$(layers_since "$since")
  echo "tidy: since $since: ${wanted:-no layer changed}"
fi
files=()
for file in "${all[@]}"; do
  if [ -n "$wanted" ] && [[ $file =~ $wanted ]]; then
    files+=("$file")
  fi
done
echo "tidy: ${#files[@]} of ${#all[@]} files"
if [ "${#files[@]}" -gt 0 ]; then
  # shellcheck disable=SC2016  # $1 is the file
  printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$(nproc)" bash -c 'tidy_file "$1"' tidy ||
    {
      echo "tidy: found, all in one list:"
      grep -E ': (error|warning): ' "$FOUND" | sort -u
      exit 1
    }
fi

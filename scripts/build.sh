#!/usr/bin/env bash
# Installs what is missing, configures and builds one preset into build/<preset>.
#
# usage: scripts/build.sh [PRESET [TARGET...]]     release and everything by default
#
# On a terminal the compiler's progress is shown; else it goes to build/<preset>.log, whose end is
# shown when the build fails.
set -euo pipefail

cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
readonly PRESET=${1:-release}
targets=("${@:2}")
readonly LOG=build/$PRESET.log

failed() {
  tail -n 40 "$LOG" >&2
  echo "build: $1 failed; all of it is in $LOG" >&2
  exit 1
}

scripts/install-deps.sh
mkdir -p build
started=$SECONDS
echo "build: preset $PRESET into build/$PRESET (from nothing: some minutes)"
cmake --preset "$PRESET" >"$LOG" 2>&1 || failed "cmake --preset $PRESET"
build=(cmake --build --preset "$PRESET" ${targets:+--target "${targets[@]}"})
if [ -t 1 ]; then
  "${build[@]}"
else
  "${build[@]}" >>"$LOG" 2>&1 || failed "${build[*]}"
fi
echo "build: done in $((SECONDS - started)) s"

#!/usr/bin/env bash
# Builds the release preset and runs its benchmarks: every build/release/bin/*_bench.
#
# usage: scripts/bench.sh [benchmark arguments...]     e.g. scripts/bench.sh --benchmark_filter=dot
set -euo pipefail

cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
scripts/build.sh release
ran=0
for bench in build/release/bin/*_bench; do
  if [ -x "$bench" ]; then
    echo "bench: ${bench##*/}"
    "$bench" "$@"
    ran=$((ran + 1))
  fi
done
if [ "$ran" -eq 0 ]; then
  echo "bench: build/release/bin holds no *_bench" >&2
  exit 1
fi

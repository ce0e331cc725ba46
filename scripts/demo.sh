#!/usr/bin/env bash
# Shows the engine at work: installs what is missing, builds it, and lets it continue five token ids
# by eight on the small checkpoint that the tests use.
#
# usage: scripts/demo.sh [k3 options...]     e.g. scripts/demo.sh --threads 1
set -euo pipefail

cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
readonly MODEL=tests/fixtures/models/demo
readonly REPORT=build/release/demo.json

scripts/build.sh release k3
if ! [ -f "$MODEL/config.json" ]; then
  echo "demo: $MODEL/config.json is missing from this checkout" >&2
  exit 1
fi
command=(build/release/bin/k3 "$MODEL" --ids "3,4,5,6,7" --gen 8 --out "$REPORT" "$@")
rm -f "$REPORT"
echo "demo: ${command[*]}"
status=0
"${command[@]}" || status=$?
if [ "$status" -ne 0 ]; then
  echo "demo: k3 failed with status $status" >&2
  exit "$status"
fi
if ! [ -s "$REPORT" ]; then
  echo "demo: k3 wrote no report to $REPORT" >&2
  exit 1
fi
echo "demo: done; the report of the run is $REPORT"

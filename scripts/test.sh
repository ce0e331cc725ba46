#!/usr/bin/env bash
# Installs what is missing, builds the release preset and runs every test.
#
# usage: scripts/test.sh [ctest arguments...]     e.g. scripts/test.sh -R kernels -j8
set -euo pipefail

cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
scripts/build.sh release
exec ctest --preset release "$@"

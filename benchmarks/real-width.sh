#!/usr/bin/env bash
# The engine at the released width, at every budget from the floor to all in memory, each under a
# memory cgroup: are tokens and logits the same, and how do time and memory compare with the disk's
# bandwidth, the plan and the kernels? Makes its checkpoint (about 12.5 GB, and 9 GB of packed trunk).
#
# usage: benchmarks/real-width.sh [options] [DIRECTORY]     see --help; default build/real-width
set -euo pipefail

cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
scripts/build.sh release
exec python3 benchmarks/real_width.py "$@"

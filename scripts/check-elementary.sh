#!/usr/bin/env bash
# exp, sigmoid and tanh of every float32 on every instruction set of this machine (and AVX-512 in
# emulation where it is missing) against the scalar contract, bit for bit. On all threads; takes some
# minutes.
#
# usage: scripts/check-elementary.sh
set -euo pipefail

cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
scripts/build.sh release k3_kernels_tests
exec build/release/bin/k3_kernels_tests --gtest_also_run_disabled_tests \
  --gtest_filter='AllFloats.DISABLED_EachGivesTheBitsOfScalar'

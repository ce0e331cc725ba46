#!/usr/bin/env bash
# Cross-builds k3 and its tests for aarch64, runs the tests in qemu and compares the logits of the
# fixture models with those of the native build, byte for byte.
#
# usage: scripts/test-aarch64.sh [ctest arguments...]     e.g. scripts/test-aarch64.sh -L kernels
#
# On Debian. The cross compiler and qemu are installed where they are missing; the arm64 libraries
# are only unpacked, into build/aarch64/sysroot. Needs the network the first time.
set -euo pipefail

cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
readonly BUILD=$PWD/build/aarch64
readonly SYSROOT=$BUILD/sysroot
readonly MODELS=tests/fixtures/models
readonly EMULATOR=(qemu-aarch64 -L /usr/aarch64-linux-gnu)

# apt_arm64 COMMAND...: apt with an index of its own, so that this system stays without arm64.
apt_arm64() {
  local tool=$1
  shift
  "$tool" -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Acquire::Languages=none \
    -o Dir::State="$BUILD/apt" -o Dir::State::status=/dev/null -o Dir::Cache="$BUILD/apt" \
    -o APT::Sandbox::User="$(id -un)" "$@"
}

# The compiled libraries of scripts/install-deps.sh; the others are headers for any processor.
fill_sysroot() {
  if [ -e "$BUILD/sysroot.done" ]; then
    return
  fi
  echo "aarch64: fetching simdjson and GoogleTest for arm64"
  rm -rf "$BUILD/debs" "$SYSROOT"
  mkdir -p "$BUILD"/apt/{lists,archives}/partial "$BUILD/debs" "$SYSROOT"
  apt_arm64 apt-get update
  local shared package
  # The package of the shared library carries its version: libsimdjson14 on Debian 12.
  shared=$(apt_arm64 apt-cache depends libsimdjson-dev | sed -n 's/.*Depends: \(libsimdjson[0-9]*\)$/\1/p')
  (cd "$BUILD/debs" && apt_arm64 apt-get download libsimdjson-dev "$shared" libgtest-dev libgmock-dev)
  for package in "$BUILD"/debs/*.deb; do
    dpkg -x "$package" "$SYSROOT"
  done
  touch "$BUILD/sysroot.done"
}

# The contract's fused operations must be instructions: libm's fmaf may be slow, and its bits are
# nobody's promise.
check_fused() {
  local library=$BUILD/src/libk3_core.a called
  called=$(aarch64-linux-gnu-nm --undefined-only "$library" | grep -wE 'fmaf?' || true)
  if [ -n "$called" ]; then
    echo "aarch64: $library calls libm for fused operations: $called" >&2
    return 1
  fi
}

# logits FILE MODEL COMMAND...: the logits that this k3 gives for the prompt.
logits() {
  local file=$1 model=$2
  shift 2
  "$@" "$MODELS/$model" --ids 3,4,5,6,7 --gen 1 --threads 2 --out "$BUILD/run.json" \
    --dump-logits "$file" >"$BUILD/run.log" || {
    cat "$BUILD/run.log" >&2
    return 1
  }
}

compare_logits() {
  local config model count=0 out=$BUILD/logits
  mkdir -p "$out"
  for config in "$MODELS"/*/config.json; do
    model=$(basename "$(dirname "$config")")
    logits "$out/$model.aarch64" "$model" "${EMULATOR[@]}" "$BUILD/bin/k3"
    logits "$out/$model.scalar" "$model" env K3_ISA=scalar build/release/bin/k3
    logits "$out/$model.native" "$model" env -u K3_ISA build/release/bin/k3
    cmp "$out/$model.aarch64" "$out/$model.scalar"
    cmp "$out/$model.aarch64" "$out/$model.native"
    count=$((count + 1))
  done
  if [ "$count" -eq 0 ]; then
    echo "aarch64: no model in $MODELS to compare" >&2
    return 1
  fi
  echo "aarch64: logits of $count models are those of the native build, scalar and default kernels"
}

main() {
  scripts/install-deps.sh --aarch64
  fill_sysroot
  cmake --preset aarch64 >/dev/null
  echo "aarch64: building into build/aarch64"
  cmake --build --preset aarch64 >"$BUILD.log" 2>&1 || {
    tail -n 40 "$BUILD.log" >&2
    echo "aarch64: the build failed; all of it is in build/aarch64.log" >&2
    return 1
  }
  check_fused
  scripts/build.sh release k3
  compare_logits
  echo "aarch64: left out in qemu: the policies, the tools, three tests of the program (docs/testing.md)"
  ctest --preset aarch64 "$@"
}

main "$@"

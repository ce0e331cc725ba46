#!/usr/bin/env bash
# Installs what the project needs on Debian or Ubuntu, and nothing when everything is there.
#
# usage: scripts/install-deps.sh            what building, testing and running need
#        scripts/install-deps.sh --ci       the same, and what .ci/run needs besides
#        scripts/install-deps.sh --aarch64  the same, and what scripts/test-aarch64.sh needs besides
#        scripts/install-deps.sh --list     prints the packages (with --ci, --aarch64: theirs too)
#
# Exit status: 0 all there or installed, or a system without apt (then a message names the
# libraries and CMake judges); 1 something is missing and could not be installed; 2 usage.
set -euo pipefail

# The one list of packages.
readonly BUILD_PACKAGES=(
  g++ cmake ninja-build
  libcli11-dev nlohmann-json3-dev libsimdjson-dev libxxhash-dev libedit-dev
  libgtest-dev libgmock-dev libbenchmark-dev
  libsimde-dev # AVX-512 kernels are tested in emulation where the processor lacks them
)
readonly CI_PACKAGES=(
  clang clang-format clang-tidy libclang-rt-14-dev libomp-dev # tidy parses omp.h with clang
  git shellcheck
  python3 python3-numpy python3-torch # the reference implementation
  python3-regex unicode-data # the tokenizer's reference, its classes of characters
)
readonly AARCH64_PACKAGES=(g++-aarch64-linux-gnu qemu-user)

usage() {
  sed -n '4,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
}

# Packages of the arguments that dpkg does not know as installed, one a line.
missing_packages() {
  local installed package
  # A line for each package that dpkg knows: "name installed", or another state.
  installed=$(dpkg-query -W -f '${Package} ${db:Status-Status};\n' "$@" 2>/dev/null || true)
  for package in "$@"; do
    [[ $'\n'$installed == *$'\n'"$package installed;"* ]] || echo "$package"
  done
}

# Runs apt-get as root, directly or through sudo.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif [ -t 0 ]; then
    sudo "$@"
  else
    sudo -n "$@" # nobody can type a password here
  fi
}

install_packages() {
  local command="apt-get update && apt-get install -y --no-install-recommends $*"
  if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; then
    echo "dependencies: missing: $*" >&2
    echo "dependencies: not root and no sudo here; run as root: $command" >&2
    return 1
  fi
  echo "dependencies: installing $*"
  # A stale or partial index is still worth a try: the install decides.
  as_root apt-get update -qq >/dev/null || echo "dependencies: apt-get update failed, going on" >&2
  if ! as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq -oDpkg::Use-Pty=0 --no-install-recommends "$@" >/dev/null; then
    echo "dependencies: could not install; run as root: $command" >&2
    return 1
  fi
}

main() {
  local packages=("${BUILD_PACKAGES[@]}") list=no argument
  for argument in "$@"; do
    case $argument in
      --ci) packages+=("${CI_PACKAGES[@]}") ;;
      --aarch64) packages+=("${AARCH64_PACKAGES[@]}") ;;
      --list) list=yes ;;
      --help) usage && return ;;
      *)
        usage >&2
        return 2
        ;;
    esac
  done
  if [ "$list" = yes ]; then
    echo "${packages[*]}"
    return
  fi
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "dependencies: no apt on this system, nothing is installed. Needed: a C++20 compiler with"
    echo "  OpenMP, CMake 3.25, Ninja, CLI11, nlohmann-json, simdjson, xxHash, libedit, GoogleTest with"
    echo "  GoogleMock, Google Benchmark. CMake names what it does not find."
    return
  fi
  local missing
  mapfile -t missing < <(missing_packages "${packages[@]}")
  if [ "${#missing[@]}" -eq 0 ]; then
    echo "dependencies: all ${#packages[@]} packages are installed"
    return
  fi
  install_packages "${missing[@]}"
  mapfile -t missing < <(missing_packages "${packages[@]}")
  if [ "${#missing[@]}" -ne 0 ]; then
    echo "dependencies: still missing after the installation: ${missing[*]}" >&2
    return 1
  fi
}

main "$@"

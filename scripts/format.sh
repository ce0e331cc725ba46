#!/usr/bin/env bash
# Formats every C++ file of the project with clang-format 14, or checks that nothing is left to do.
#
# usage: scripts/format.sh [--check]
set -euo pipefail

cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
case ${1:-} in
  '') mode=(-i) outcome=formatted ;;
  --check) mode=(--dry-run -Werror) outcome=clean ;;
  *)
    echo "usage: scripts/format.sh [--check]" >&2
    exit 2
    ;;
esac

version=$(clang-format --version)
if [[ $version != *' version 14.'* ]]; then
  echo "format: other versions than 14 format differently; here: $version" >&2
fi
mapfile -d '' files < <(find include src tools tests benchmarks -type f \
  '(' -name '*.h' -o -name '*.cpp' ')' -print0 | sort -z)
if [ "${#files[@]}" -eq 0 ]; then
  echo "format: no C++ file found" >&2
  exit 1
fi
clang-format "${mode[@]}" --style=file "${files[@]}"
echo "format: ${#files[@]} files $outcome"

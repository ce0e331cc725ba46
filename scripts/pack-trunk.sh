#!/usr/bin/env bash
# Builds k3-pack and runs it: copies the trunk of a model into TRUNK_DIR/trunk.bin and trunk.json.
#
# usage: scripts/pack-trunk.sh MODEL_DIR TRUNK_DIR [k3-pack options...]     --help shows them
set -euo pipefail

# Relative names are those of the caller's directory.
root=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/..
if [ "$#" -eq 0 ]; then
  sed -n '4s/^# //p' "${BASH_SOURCE[0]}" >&2
  exit 2
fi
"$root/scripts/build.sh" release k3-pack >&2
exec "$root/build/release/bin/k3-pack" "$@"

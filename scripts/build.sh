#!/usr/bin/env bash
# Configures a preset and builds all of it, or only some targets: scripts/build.sh PRESET [TARGET...]
# Says little unless something fails. Uses ccache where it is installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=$1
shift
targets=()
if (($# > 0)); then targets=(--target "$@"); fi
if command -v ccache > /dev/null; then export CMAKE_CXX_COMPILER_LAUNCHER=ccache; fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
quietly() {
  "$@" > "$log" 2>&1 || {
    cat "$log" >&2
    exit 1
  }
}

echo "Building build/$preset"
quietly cmake --preset "$preset"
build=(cmake --build --preset "$preset" --parallel "$(nproc)" "${targets[@]}")
if [[ -t 1 ]]; then "${build[@]}"; else quietly "${build[@]}"; fi

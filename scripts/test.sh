#!/usr/bin/env bash
# Sets up, builds a preset (release if none is named) and runs all its tests: scripts/test.sh [PRESET]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=${1:-release}
scripts/setup.sh
scripts/build.sh "$preset"
exec ctest --preset "$preset" --parallel "$(nproc)"

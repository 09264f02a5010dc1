#!/usr/bin/env bash
# Sets up, builds the forecaster and runs it on its own data: scripts/demo.sh [ARGUMENTS OF forecast]
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

"$root/scripts/setup.sh" --demo
"$root/scripts/build.sh" release forecast
exec "$root/build/release/bin/forecast" "$@"

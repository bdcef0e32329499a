#!/usr/bin/env bash
# Configures a preset in its own folder, builds all of it and runs its unit tests: preset_test.sh PRESET
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
cmake --preset "$1"
cmake --build --preset "$1" -j "$(nproc)"
ctest --test-dir "build-$1" -L unit -LE slow -j "$(nproc)" --output-on-failure --no-label-summary

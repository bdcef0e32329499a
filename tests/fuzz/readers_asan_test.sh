#!/usr/bin/env bash
# A million random and mutated files for the readers, damaged images by the thousand (`images_fuzz_test`), or damaged click
# logs (`criteo_fuzz_test`), in a tree with address and undefined-behaviour sanitizers.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
target=${1:-readers_test}
cmake --preset asan
cmake --build --preset asan -j "$(nproc)" --target "$target"
"build-asan/bin/$target" --gtest_brief=1 --gtest_also_run_disabled_tests --gtest_filter='*.DISABLED_*'

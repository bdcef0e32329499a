#!/usr/bin/env bash
# A million random and mutated files for the readers, in a tree with address and undefined-behaviour sanitizers.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
cmake --preset asan
cmake --build --preset asan -j "$(nproc)" --target readers_test
build-asan/bin/readers_test --gtest_brief=1 --gtest_also_run_disabled_tests --gtest_filter='*Million*'

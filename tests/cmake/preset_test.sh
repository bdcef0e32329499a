#!/usr/bin/env bash
# Configures a preset in a separate folder, builds it and runs its unit tests: preset_test.sh PRESET
#
# For tsan, only tests with threads run: workers in one process and loaders. That sanitizer doesn't see OpenMP's own threads,
# so there is one per worker. It doesn't see oneDNN's either, so kernels are the reference ones. The grids of methods take
# half an hour under it and have the same threads as the rest, so they are left out. A test that forks while threads run may
# start no new threads there. ZeroMQ's threads aren't instrumented: every element that they write into a message would be a
# race when it is read, so their accesses don't count.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
options=(-DHETU_UNITY=ON) build=() tests=(-L unit -LE slow)
if [ "$1" = tsan ]; then
  names=(comm_test interpreter_test rehearse_test datasets_test executor_test predictor_test average_test ps_test ps_server_test)
  build=(--target "${names[@]}")
  tests=(-R "^($(IFS='|'; printf '%s' "${names[*]}"))\$")
  export TSAN_OPTIONS="suppressions=$PWD/tests/cmake/tsan.supp ignore_noninstrumented_modules=1"
  export HETU_KERNELS=reference OMP_THREAD_LIMIT=1 OMP_NUM_THREADS=1 GTEST_FILTER='-Grid/*:SplitBackward.*:Zmq.HelloIsSaidAgain*:Store.Every*:Store.Random*:Lossy*:Log.*:Status.*:TableMessages.*'
fi
if [ "$1" = asan ]; then export LSAN_OPTIONS=suppressions=$PWD/tests/cmake/lsan.supp; fi
if [ "$1" = core ]; then options=(-DHETU_UNITY=OFF -DHETU_PRECOMPILE=OFF); fi  # a source that lacks an include of its own shows
cmake --preset "$1" "${options[@]}"
cmake --build --preset "$1" -j "$(nproc)" "${build[@]}"
ctest --test-dir "build-$1" "${tests[@]}" -j "$(nproc)" --output-on-failure --no-label-summary

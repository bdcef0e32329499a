#!/bin/sh
# Two processes on one host, each started by hand: type `sh scripts/manual.sh 0` in one shell and
# `sh scripts/manual.sh 1` in another.
here=$(dirname "$0")
[ -f "$here/settings.sh" ] || here=scripts  # sbatch runs a copy of this file, in the folder where it was typed
stages=${stages:-2} ngpus=2 microbs=${microbs:-4} steps=${steps:-128} pipeline=${pipeline:-1f1b}
. "$here/settings.sh"
rank=${1:-}
case $rank in
  0 | 1) shift ;;
  *) fail "type 'sh scripts/manual.sh 0' in one shell and 'sh scripts/manual.sh 1' in another" ;;
esac
pipelined by_hand --num_optimization_steps "$steps" "$@"

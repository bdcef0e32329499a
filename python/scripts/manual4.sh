#!/bin/sh
# Two hosts with two processes each, started by hand: type `MASTER_ADDR=HOST sh scripts/manual4.sh 0` on the first host,
# whose name or address is HOST, and the same with 1 on the second.
here=$(dirname "$0")
[ -f "$here/settings.sh" ] || here=scripts  # sbatch runs a copy of this file, in the folder where it was typed
stages=${stages:-4} ngpus=4 microbs=${microbs:-4} steps=${steps:-8} pipeline=${pipeline:-1f1b}
. "$here/settings.sh"
node=${1:-}
case $node in
  0 | 1) shift ;;
  *) fail "type 'MASTER_ADDR=HOST sh scripts/manual4.sh 0' on the host HOST, and the same with 1 on the other host" ;;
esac
[ -n "${MASTER_ADDR:-}" ] || fail "MASTER_ADDR is not set; give the first host, as in: MASTER_ADDR=w0 sh $0 $node"
rank=$((2 * node))
pipelined by_hand --num_optimization_steps "$steps" "$@" &
first=$!
rank=$((2 * node + 1))
status=0
pipelined by_hand --num_optimization_steps "$steps" "$@" || status=$?
wait $first || status=$?
exit $status

#!/bin/sh
#SBATCH --nodes=8 --ntasks=8 --ntasks-per-node=1 --output=%x.%j.txt
# Records 8 steps of a pipeline with K-FAC's work in its bubbles, and draws bert_prof/NAME_pipefisher.pdf. The run places the
# work itself, from the durations that it measures, so it needs no file of auto_schedule.sh.
here=$(dirname "$0")
[ -f "$here/settings.sh" ] || here=scripts  # sbatch runs a copy of this file, in the folder where it was typed
. "$here/settings.sh"
pipelined start --profile --timelines --record_ngd --fill best "$@"

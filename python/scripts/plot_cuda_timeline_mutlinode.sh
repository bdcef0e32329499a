#!/bin/sh
# Draws bert_prof/NAME.pdf of a job on several hosts. Its trace has the events of all workers, as on one host.
here=$(dirname "$0")
[ -f "$here/settings.sh" ] || here=scripts  # sbatch runs a copy of this file, in the folder where it was typed
. "$here/plot_cuda_timeline.sh"

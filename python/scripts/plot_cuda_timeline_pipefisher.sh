#!/bin/sh
# Draws bert_prof/NAME_pipefisher.pdf again, from the trace of prof_pipefisher_steps.sh.
here=$(dirname "$0")
[ -f "$here/settings.sh" ] || here=scripts  # sbatch runs a copy of this file, in the folder where it was typed
. "$here/settings.sh"
plot _pipefisher prof_pipefisher_steps.sh "$@"

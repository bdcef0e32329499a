#!/bin/sh
# Draws bert_prof/NAME.pdf again, from the trace of prof_steps.sh.
here=$(dirname "$0")
[ -f "$here/settings.sh" ] || here=scripts  # sbatch runs a copy of this file, in the folder where it was typed
. "$here/settings.sh"
plot "" prof_steps.sh --step 5 "$@"

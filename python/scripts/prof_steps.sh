#!/bin/sh
#SBATCH --nodes=8 --ntasks=8 --ntasks-per-node=1 --output=%x.%j.txt
# Records 8 steps of a pipeline (Chimera, BERT-Large, 8 stages), and draws bert_prof/NAME.pdf.
here=$(dirname "$0")
[ -f "$here/settings.sh" ] || here=scripts  # sbatch runs a copy of this file, in the folder where it was typed
. "$here/settings.sh"
pipelined start --profile --timelines "$@"

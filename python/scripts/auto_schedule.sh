#!/bin/sh
# Places K-FAC's work in the bubbles that prof_kfac_steps.sh recorded, and writes bert_prof/NAME_kfac_schedule.pickle.
here=$(dirname "$0")
[ -f "$here/settings.sh" ] || here=scripts  # sbatch runs a copy of this file, in the folder where it was typed
. "$here/settings.sh"
recorded=bert_prof/${name}_kfac
[ -f "${recorded}_node0_timeline.pickle" ] ||
  fail "${recorded}_node0_timeline.pickle: no such file; run scripts/prof_kfac_steps.sh with the same settings first"
hetu fill "${recorded}_node"*_timeline.pickle --save_path "${recorded}_schedule.pickle" "$@"
echo "${recorded}_schedule.pickle"

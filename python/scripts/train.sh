#!/bin/sh
#SBATCH --nodes=32 --ntasks=32 --ntasks-per-node=1 --output=%x.%j.txt
# Phase 1 of BERT-Base by NVLAMB, on 32 workers with a batch of 8192.
here=$(dirname "$0")
[ -f "$here/settings.sh" ] || here=scripts  # sbatch runs a copy of this file, in the folder where it was typed
model=${model:-bert-base} ngpus=${ngpus:-32} acc=${acc:-8} batch=${batch:-8192} steps=${steps:-7038}
. "$here/settings.sh"
on_text start main_bert_simple.py --batch_size "$batch" --gradient_accumulation_steps "$acc" --learning_rate 6e-3 \
  --weight_decay 0.01 --warmup_proportion 0.2843 --num_optimization_steps "$steps" --seed 0 "$@"

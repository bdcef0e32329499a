# What the scripts of this folder share: settings, and how a training starts. A script sets `here`, its folder, and its own
# settings, and then reads this file. Every setting can be given before the command:
#   model=tiny stages=2 ngpus=2 microbs=1 sh scripts/prof_steps.sh
set -eu

fail() {
  echo "$(basename "$0"): $*" >&2
  exit 2
}

command -v heturun > /dev/null || fail "heturun is not in PATH; type 'source hetu.exp' in the root of the tree first"

corpus=${corpus:-bert_data/wikipedia.segmented.nltk.txt}
vocab=${vocab:-bert_data/vocab.txt}
model=${model:-bert-large}     # bert-tiny, bert-base, bert-large, tiny, or a JSON file
pipeline=${pipeline:-chimera}  # or gpipe, 1f1b, interleave
stages=${stages:-8}
ngpus=${ngpus:-8}              # workers; on a machine without GPUs they compute on its CPUs
microbs=${microbs:-32}
acc=${acc:-1}
sequence=${sequence:-128}
cluster=${cluster:-}           # a cluster file with the hosts of the workers
pre_cmd=${pre_cmd:-}           # a command that each host runs once before the workers start

model_file=$here/../../config/models/bert_config_$model-uncased.json
[ -f "$model_file" ] || model_file=$model
short=$(basename "$model" .json)
short=${short#bert_config_}
name=${short%-uncased}_${pipeline}_${stages}stages_${ngpus}gpus_microbs${microbs}_acc$acc

# start COMMAND…: starts a command once per worker, on the hosts of `cluster`, in the Slurm allocation, or on this host.
start() {
  [ -z "$pre_cmd" ] || set -- --pre-command "$pre_cmd" "$@"
  if [ -n "$cluster" ]; then
    heturun -c "$cluster" "$@"
  elif [ -n "${SLURM_JOB_NODELIST:-}" ]; then
    [ "${SLURM_NTASKS:-$ngpus}" = "$ngpus" ] ||
      fail "ngpus is $ngpus, but the Slurm allocation has $SLURM_NTASKS tasks; give both the same number (sbatch --ntasks)"
    heturun "$@"
  else
    heturun -w "$ngpus" "$@"
  fi
}

# by_hand COMMAND…: starts a command as worker `rank` of `ngpus`.
by_hand() {
  RANK=$rank WORLD_SIZE=$ngpus MASTER_ADDR=${MASTER_ADDR:-127.0.0.1} MASTER_PORT=${MASTER_PORT:-1234} "$@"
}

# on_text HOW SCRIPT FLAG…: runs a training script on the corpus. HOW is start or by_hand.
on_text() {
  [ -f "$corpus" ] || fail "$corpus: no such file; put the corpus there, or give corpus=FILE before the command"
  [ -f "$vocab" ] ||
    fail "$vocab: no such file; put the vocabulary there, or make it: hetu data vocabulary $corpus --encoding latin-1 -o $vocab"
  how=$1 script=$2
  shift 2
  "$how" python3 "$here/../$script" --corpus_path "$corpus" --vocab_path "$vocab" --do_lower_case \
    --bert_config_path "$model_file" --max_seq_length "$sequence" "$@"
}

# pipelined HOW FLAG…: runs main_bert.py with the pipeline of the settings.
pipelined() {
  pipelined_how=$1
  shift
  on_text "$pipelined_how" main_bert.py --pipeline_method "$pipeline" --num_stages "$stages" --micro_batch_size "$microbs" \
    --gradient_accumulation_steps "$acc" "$@"
}

# plot SUFFIX SCRIPT OPTION…: draws bert_prof/$name$SUFFIX.pdf from the trace that SCRIPT has left.
plot() {
  drawn=bert_prof/$name$1
  [ -f "$drawn.json" ] || fail "$drawn.json: no such file; run scripts/$2 with the same settings first"
  shift 2
  hetu timeline "$drawn.json" --style profile "$@" -o "$drawn.pdf"
  echo "$drawn.pdf"
}

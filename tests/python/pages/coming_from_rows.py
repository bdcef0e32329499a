"""The tables of docs/coming-from.md, and the check of coming_from_test.py for each row."""
import re
import shlex

from train_cases import ROOT

PAGE = ROOT / "docs" / "coming-from.md"
# Maps each method of Checks to the first cells of its rows. Several rows can share a method.
CHECKS = {
    "auto_config": ["`AutoConfig(…).get_min()`"],  # its rules: tests/python/compat/auto_config_test.py
    "configures": ["`cp cmake/config.example.cmake cmake/config.cmake`", "`mkdir build && cd build && cmake ..`",
                   "`make -j`"],
    "exports": ["`source hetu.exp`", "`import hetu`"],
    "shards_are_read": ["HDF5 shards by NVIDIA's BERT scripts", "`wikicorpus_en_training_<i>.hdf5`"],
    # rows and defaults: tests/python/compat/bert_prep_test.py
    "bert_prep": ["the constants of NVIDIA's BERT scripts: 256 + 256 shards, seed 12345, dupe factor 5, …"],
    "main_bert": ["`main_bert.py --pipeline_method chimera`", "`main_bert.py --profile`, `bert_prof/NAME.pdf`",
                  "its flags, `--config FILE.yml`", "its cut: last stage <= first <= middle stages"],
    "wandb": ["`main_bert.py --wandb`"],  # what is logged: tests/python/compat/chimera_flags_test.py
    # the labels: tests/python/compat/timelines_test.py
    "main_bert_kfac": ["`main_bert.py --record_ngd`, `--damping`",
                       "`bert_prof/NAME_node<i>_timeline.pickle`, recorded labels"],
    "main_bert_simple": ["`main_bert_simple.py`"],
    "scripts": ["`sbatch scripts/prof_steps.sh`", "`sbatch scripts/train.sh`: NVLAMB",
                "`sbatch scripts/train_kfac.sh`: K-FAC",
                "`sh scripts/plot_cuda_timeline.sh`, `sh scripts/plot_cuda_timeline_mutlinode.sh`",
                "step 0: `scripts/prof_steps.sh`, `scripts/plot_cuda_timeline.sh`",
                "step 1: `scripts/prof_kfac_steps.sh`, `scripts/plot_cuda_timeline_kfac.sh`",
                "step 2: `scripts/auto_schedule.sh`, `NAME_kfac_schedule.pickle`",
                "step 3: `scripts/prof_pipefisher_steps.sh`, `scripts/plot_cuda_timeline_pipefisher.sh`"],
    "scripts_by_hand": ["`scripts/manual.sh`: a command for each process, 1 node x 2",
                        "`scripts/manual4.sh`: 2 nodes x 2"],
    "shutdown": ["`sh shutdown.sh`"],
    "pre_command": ["`pre_cmd`, a command once per node"],  # more: tests/python/launch/pre_command_test.py
    # the files: tests/python/compat/pipedream_files_test.py
    "pipedream_files": ["its optimizer: `graph.txt` of a profile, `-n`, `-b`, levels",
                        "`gpus=N.txt`, `stage_id` of each node",
                        "conf file: `module_to_stage_map`, `stage_to_rank_map`"],
    "by_hand": ["`RANK`, `WORLD_SIZE`, `MASTER_ADDR`, `MASTER_PORT` before `python main_bert.py`",
                "`LOCAL_RANK`, `LOCAL_SIZE`, `SLURM_LOCALID`, `SLURM_NTASKS_PER_NODE`"],
    "text_is_read": ["`bert_data/wikipedia.segmented.nltk.txt`"],
    "every_row_once": ["pipeline d reads files d, d+N, … without shuffling"],
    "shipped_files": ["`config/w0_w1.yml`", "`config/w2_w3.yml`", "`config/w4_w5.yml`", "`config/w6_w7.yml`",
                      "files for 4 and 8 hosts", "`config_local`"],
    "cluster_file": ["`nodes:`", "`host`, `servers`, `workers`, `chief`", "other keys at the top",
                     "hosts must be called w0 to w7"],
    "device_lists": ["`device_list.py`", "`my_device`", '`rgpu("w0", 4)` `gpu(0)`', "`w0:gpu:0` as text",
                     "`pipe_2_4` `pipe_4_4` `pipe_8_4` `pipe_16_4` `pipe_8_2` `pipe_16_1`"],
    "launches": ["`heturun`", "`-w`, `--workers`", "`-i`, `--identify`", "the command and its arguments",
                 "the `Cluster: {` block", "output tagged by worker", "`DMLC_*` `PS_*` `PORT` are handed to the workers"],
    # more: tests/python/compat/launcher_test.py
    "older_launcher": ["`from hetu.launcher import launch`, `launch(target, args)`", "`shared:` and `launch:` of its file"],
    "older_servers": ["`python3 -m hetu.launcher FILE -n N [--sched]`"],
    "prefix": ["the longest common prefix, /16 to /30"],
    "bert": ["`-c`, `--config`", "the folder in `models/wiki.py`", "`--epochs`", "`--batch-size`", "`--learning-rate`",
             "`--pipeline gpipe`", "`Training E epoch, each epoch runs M iteration`",
             "`<e> TRAIN loss … lm … ns … lr …, time …`", "`--name`",
             "TensorBoard: `runs/<name>`, `Train/loss`, `Validation/loss`", "`~/.cache/hetu/datasets/wikicorpus_en/`",
             "`shared_weights`"],
    "resnet": ["`--dataset`", "`--model`", "`--batch-size`, default 128", "`--learning-rate`, default 0.1",
               "`--weight-decay`, default 5e-4", "`<e> TRAIN loss … acc … lr …, time …`", "`<e> EVAL  loss … acc …`",
               "TensorBoard: `Train/acc`, `Validation/loss`, `Validation/acc`",
               "folder of ImageNet, TRAIN and EVAL, 1000 class folders each",
               "`IMAGENET_TRAIN_ROOT`, `IMAGENET_VAL_ROOT` in `datasets/imagenet.py`"],
    "cifar": ["CIFAR-100"],
    "data_parallel": ["`--pipeline dp`"],
    "slurm": ["`sbatch`, one worker per node"],
    "pipedream": ["`--pipeline pipedream`", "its runtime: warm-up, weight stashing"],
    "servers": ["`--pipeline hetpipe`", "`-s`, `--servers`", "scheduler and server processes"],
    "partial_reduce": ["`--preduce`", "`--adpsgd`", "`--hetero`"],
    # the formula: tests/python/compat/convergence_bound_test.py
    "convergence_bound": ["the convergence bound: learning rate and updates K"],
    "pauses_by_the_environment": ["`DEBUG_HETERO`"],
    "chimera_and_varuna": ["training by its schedule"],
    "chimera_pdf": ["its figure of BERT-Large, `bert_prof/bert-large_chimera_8stages_8gpus_microbs32_acc1.pdf`"],
    "block_profiler": ["its block profiler, `{model}_time_memory_{gpu}.csv`"],
    "phase_one": ["the settings of these two, under a pipeline"],
    "one_byte": ['"single byte" all-reduce, send and receive'],
    "chimera_copies": ["BERT by Chimera, 4 or 8 stages, several copies"],
    "varuna_wrapper": ["`CutPoint`, in a model of PyTorch",
                       "`Varuna(model, stage_to_rank_map, get_batch_fn, batch_size, chunk_size)`",
                       "`step`, `evaluate`, `set_optimizer`, `zero_grad`, `train`, `eval`, `get_loss_scale`, `get_status`",
                       "`checkpoint`, `load_checkpoint`", "`get_varuna_config`, `get_this_rank_config_varuna`",
                       "`from varuna import …`", "`fp16=True`, loss scales", "`Profiler`: `compute-profile-<piece>`"],
    "elastic": ["morphing on a changing list of machines"],  # more: tests/python/launch/elastic_test.py
    "run_varuna": ["`python -m varuna.run_varuna --machine_list FILE`",  # more: tests/python/compat/run_varuna_test.py
                   "`--nstages`, `--chunk_size`, `--batch-size` of the whole job",
                   "arguments of the script: `--rank`, `--local_rank`, `--stage_to_rank_map`, `--chunk_size`, "
                   "`--batch-size`"],
    "stops_and_saves": ["SIGUSR1: the user's handler saves"],
}


def rows():
    """Returns {(system, first cell): (second cell, state)} of the page's tables."""
    found, system = {}, ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            system = line[3:]
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
        if line.startswith("| ") and cells[0] not in ("SD-PIPE", "Chimera", "PipeFisher", "Varuna", "PipeDream"):
            first, second, state = cells
            found[system, first] = (second, state)
    return found


def flags_to_come(table):
    """Returns the arguments of those first cells that hold one flag that isn't supported yet."""
    return [shlex.split(first.strip("`")) for (_, first), (_, state) in table.items()
            if first.startswith("`--") and " `" not in first and state.startswith("to come")]


def commands(cell):
    """Returns the `hetu` commands in a cell."""
    return re.findall(r"`(hetu [^`]+)`", cell)


def all_commands(cell):
    """Returns true if the cell has `hetu` commands, and none of them needs files."""
    return bool(commands(cell)) and not any(word.isupper() for words in commands(cell) for word in words.split())

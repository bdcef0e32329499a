"""Checks of the scripts of Chimera and PipeFisher (python/scripts), as functions of a test case. coming_from_test.py calls
them."""
import json
import pickle
import re
import shlex
import socket
import subprocess
import sys

from coming_from_rows import PAGE, rows
from processes import wait_until
from prose_text import write_prose
from train_cases import HETURUN, MANY_S, ROOT

NAME = "tiny_chimera_2stages_2gpus_microbs1_acc1"
SUFFIX = {"plot_cuda_timeline_kfac.sh": "_kfac", "plot_cuda_timeline_pipefisher.sh": "_pipefisher"}


def prepare(case):
    """Makes the folder of a user: the scripts, and the corpus with its vocabulary in bert_data."""
    (case.folder / "scripts").symlink_to(ROOT / "python" / "scripts")
    (case.folder / "shutdown.sh").symlink_to(ROOT / "python" / "shutdown.sh")
    data = case.folder / "bert_data"
    data.mkdir()
    text = data / "wikipedia.segmented.nltk.txt"
    write_prose(text, 40, encoding="latin-1", errors="ignore")
    case.run_words("hetu", "data", "vocabulary", text, "--encoding", "latin-1", "-o", data / "vocab.txt", "--size", "300")


def chain(case):
    """The lines of the page run unchanged, and leave the files that the READMEs name."""
    prepare(case)
    block = re.search(r"```bash\n(export model=tiny .*?)```", PAGE.read_text(), re.S)[1]
    lines = block.splitlines()
    case.assertEqual(len(lines), 10)
    for line in [*lines[1:], "sh scripts/plot_cuda_timeline_mutlinode.sh"]:
        if "plot_" in line:
            drawn = case.folder / "bert_prof" / f"{NAME}{SUFFIX.get(line.rpartition('/')[2], '')}.pdf"
            drawn.unlink()
        said = case.run_words("sh", "-e", "-c", f"{lines[0]}\n{line}", cwd=case.folder).stdout
        if "plot_" in line:
            case.assertEqual((drawn.read_bytes()[:4], said.splitlines()[-1]), (b"%PDF", f"bert_prof/{drawn.name}"), line)
        elif "prof_" in line or "train" in line:
            case.assertIn("Finished.", said, line)
        if "train_kfac" in line:
            case.assertIn("num_optimization_steps: 4\n", said.replace("[0] ", ""))
            case.assertIn("K-FAC", said)
    orders = pickle.loads((case.folder / "bert_prof" / f"{NAME}_kfac_schedule.pickle").read_bytes())
    case.assertEqual([order[0][0] for order in orders], ["-- start --"] * 2)  # one list of iterations per stage
    case.assertTrue(any(label.startswith("inv_kron_A:stage1.") for label in sum(orders[1], [])), orders[1])


def by_hand(case):
    """Each command starts its processes, and all train together."""
    prepare(case)
    for script, stages, shells in (("manual.sh", 2, (0, 1)), ("manual4.sh", 4, (0, 1))):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        words = f"model=tiny stages={stages} microbs=1 sequence=32 steps=2 MASTER_ADDR=127.0.0.1 MASTER_PORT={port}"
        started = [subprocess.Popen(["sh", "-c", f"{words} sh scripts/{script} {n}"], cwd=case.folder, env=case.env,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for n in shells]
        said = [shell.communicate(timeout=MANY_S) for shell in started]
        case.assertEqual([shell.returncode for shell in started], [0, 0], said)
        case.assertIn("Finished.", said[0][0])
        case.assertIn(f"world_size: {stages}\n", said[0][0])


def shutdown(case):
    """The script ends the job of this folder, and no job of another folder."""
    (case.folder / "shutdown.sh").symlink_to(ROOT / "python" / "shutdown.sh")
    other = case.folder / "other"
    other.mkdir()
    env = {name: value for name, value in case.env.items() if name != "HETU_RUNS"}
    jobs = []
    for folder in (case.folder, other):
        job = subprocess.Popen([*HETURUN, "-w", "1", "sh", "-c", "echo up; sleep 600"], cwd=folder, env=env, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        case.addCleanup(lambda job=job: (job.terminate(), job.wait(), job.stdout.close()))
        case.assertIn("up", job.stdout.readline())
        jobs.append(job)
    said = case.run_words(*shlex.split("sh shutdown.sh"), cwd=case.folder, env=env).stdout
    case.assertRegex(said, r"job \w+ ends at once\n")
    case.assertTrue(wait_until(lambda: jobs[0].poll() is not None, MANY_S))
    case.assertIsNone(jobs[1].poll())
    case.assertIn("no job of runs in this folder", case.run_words("sh", "shutdown.sh", cwd=case.folder, env=env).stdout)


def pre_command(case):
    """The command of the page runs once for two workers, and for the scripts' `pre_cmd`."""
    words = ("heturun", "-w", 2, "--pre-command", "echo copied >> data", "sh", "-c", "cat data")
    said = case.run_words(*words, cwd=case.folder)
    case.assertEqual(sorted(said.stdout.splitlines()), ["[0] copied", "[1] copied"])
    words = f". {ROOT}/python/scripts/settings.sh; start true"
    said = case.run_words("sh", "-c", f"here={ROOT}/python/scripts; {words}", cwd=case.folder,
                          env={**case.env, "pre_cmd": "echo first", "ngpus": "1"})
    case.assertIn("heturun: localhost: first\n", said.stderr)


def pipedream_files(case):
    """The page's command runs unchanged on a profile of three layers."""
    nodes = [f"node{i} -- Linear({i}) -- forward_compute_time=2.0, backward_compute_time=4.0, activation_size=1e6, "
             "parameter_size=4e7" for i in range(3)]
    (case.folder / "graph.txt").write_text("\n".join([*nodes, "\tnode0 -- node1", "\tnode1 -- node2", ""]))
    cell = rows()["PipeDream", "its optimizer: `graph.txt` of a profile, `-n`, `-b`, levels"][0]
    case.run_words(*shlex.split(re.search(r"`(python3 [^`]+)`", cell)[1]), cwd=case.folder)
    case.assertEqual((case.folder / "DIR" / "gpus=8.txt").read_text().count(" -- stage_id="), 3)
    ranks = json.loads((case.folder / "DIR" / "conf.json").read_text())["stage_to_rank_map"]
    case.assertEqual(sorted(sum(ranks.values(), [])), list(range(8)))


def wandb(case):
    """A stand-in for the package counts the steps."""
    (case.folder / "wandb.py").write_text("def init(config):\n    return __import__('wandb')\n"
                                          "def log(values, step):\n    print('logged', step, 'loss' in values)\n"
                                          "def finish():\n    print('logged all')\n")
    case.env["PYTHONPATH"] = f"{case.folder}:{case.env['PYTHONPATH']}"
    said = case.run_words("heturun", "-w", 2, sys.executable, ROOT / "python" / "main_bert.py", *case.text_words(),
                          "--bert_config_path", "tiny", "--num_stages", 2, "--max_seq_length", 16,
                          "--micro_batch_size", 1, "--num_optimization_steps", 2, "--wandb").stdout
    case.assertEqual([line for line in said.splitlines() if "] logged" in line],
                     ["[0] logged 0 True", "[0] logged 1 True", "[0] logged all"])


def main_bert_kfac(case):
    for more, suffix in (((), "kfac"), (("--fill", "best"), "pipefisher")):
        case.run_words("heturun", "-w", 2, sys.executable, ROOT / "python" / "main_bert.py", *case.text_words(),
                       "--bert_config_path", "tiny", "--num_stages", 2, "--max_seq_length", 16, "--micro_batch_size", 1,
                       "--record_ngd", "--damping", "0.02", "--profile", "--timelines", *more, cwd=case.folder)
        name = f"tiny_1f1b_2stages_2gpus_microbs1_acc1_{suffix}"
        for end in (".pdf", "_node0_timeline.pickle", "_node1_timeline.pickle"):
            case.assertTrue((case.folder / "bert_prof" / f"{name}{end}").is_file(), name + end)

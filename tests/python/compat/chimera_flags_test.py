"""Flags of Chimera's main_bert.py in train_bert.py.

Each flag sets the matching option of Hetu, and both train alike. --config overrides them, and each error is one line.
--beta1 and --beta2 reach the optimizer."""
import contextlib
import importlib.util
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import train_bert
from hetu import training
from prose_text import write_prose
from train_cases import HETURUN, ROOT

# Arguments for each row of the spec's table, and the options that they set.
SAME = [
    (["--corpus_path", "a.txt"], {"data": "a.txt"}), (["--vocab_path", "v"], {"vocab": "v"}),
    (["--bert_config_path", "c.json"], {"model": "c.json"}), (["--corpus_lines", "7"], {"corpus_lines": 7}),
    (["--on_memory"], {}), (["--do_lower_case"], {"cased": False}), (["--max_seq_length", "64"], {"sequence_length": 64}),
    (["--micro_batch_size", "3", "--micro_batches", "4"], {"batch_size": 12, "micro_batches": 4}),
    (["--num_optimization_steps", "9"], {"steps": 9}), (["--num_epochs", "2"], {"num_epochs": 2, "steps": None}),
    (["--adam_learning_rate", "2e-5"], {"learning_rate": 2e-5}), (["--adam_max_grad_norm", "2"], {"clip_norm": 2.0}),
    (["--beta1", "0.8"], {"beta1": 0.8}), (["--weight_decay", "0.5"], {"weight_decay": 0.5}),
    (["--warmup_proportion", "0.2"], {"warmup_share": 0.2, "schedule": "bert_linear"}),
    (["--warmup_proportion", "0.2", "--schedule", "nvlamb"], {"warmup_share": 0.2, "schedule": "nvlamb"}),
    (["--optimizer", "kfac", "--damping", "0.1", "--inv_interval", "5"], {"damping": 0.1, "curvature_every": 5}),
    (["--profile"], {"steps": 8, "corpus_lines": 10_000}), (["--observe_norm"], {"log_interval": 100}),
    (["--pipeline_method", "gpipe"], {"pipeline": "gpipe"}),
    (["--pipeline_method", "interleave", "--num_stages", "2"],
     {"pipeline": "interleaved-1f1b", "devices": "pipe_1_1", "chunks": 2, "micro_batches": 2}),
    (["--pipeline_method", "1f1b", "--num_stages", "1", "--gradient_accumulation_steps", "3", "--micro_batch_size", "2"],
     {"devices": "pipe_1_1", "micro_batches": 3, "batch_size": 6}),
    (["--pipeline_method", "chimera", "--num_pipelines", "4"], {"pairs": 2}),
    (["--recompute"], {"with_recompute": True}), (["--p2p_backend", "nccl", "--collective_backend", "gloo"], {}),
    (["--checkpoint_dir", "d"], {"checkpoint": "d"}), (["--save_checkpoint_steps", "5"], {"save_every": 5}),
    (["--seed", "3"], {"seed": 3}), (["--num_workers", "2"], {"row_threads": 2}),
    (["--log_interval", "10"], {"log_interval": 10}),
]
WRONG = [
    (["--num_stages", "0"], "--num_stages must be >= 1, got 0"),
    (["--num_stages", "3"], "1 workers can't be divided into pipelines of 3"),
    (["--gradient_accumulation_steps", "2"], "give --num_stages too, or --micro-batches"),
    (["--pipeline_method", "gpipe", "--pipeline", "1f1b"],
     "--pipeline_method gpipe and --pipeline 1f1b contradict each other"),
    (["--num_pipelines", "2"], "--num_pipelines belongs to --pipeline_method chimera"),
    (["--pipeline_method", "chimera", "--num_pipelines", "3"],
     "--num_pipelines 3: chimera runs two directions per pair, so give an even number"),
    (["--do_lower_case", "--cased"], "--do_lower_case and --cased contradict each other"),
    (["--micro_batch_size", "2", "--micro_batches", "4", "--batch_size", "9"], "--batch-size 9 contradict each other"),
    (["--warmup_proportion", "0.1", "--schedule", "linear"], "linear has --warmup-steps"),
]


class Flags(unittest.TestCase):
    def test_each_comes_to_ours(self):
        for words, wanted in SAME:
            args = train_bert.parse(words)
            for name, value in wanted.items():
                self.assertEqual(getattr(args, name), value, f"{words}: {name}")

    def test_every_flag_of_main_bert_is_taken(self):
        from hetu.compat import main_bert

        known = train_bert.options()._option_string_actions
        for action in main_bert.options()._actions:
            for flag in action.option_strings:
                # Names in Hetu: Chimera calls the first one --encoding, and always writes what the second one writes.
                if flag not in ("--corpus_encoding", "--timelines"):
                    self.assertTrue(flag in known or flag.replace("_", "-") in known, flag)

    def test_what_is_wrong_is_said(self):
        for words, message in WRONG:
            with self.assertRaisesRegex(ValueError, re.escape(message)):
                train_bert.parse(words)

    def test_betas_reach_the_optimizer(self):
        for words, betas in [(["--optimizer", "adamw", "--beta1", "0.8"], (0.8, 0.999)),
                             (["--optimizer", "lamb", "--beta2", "0.98"], (0.9, 0.98)),
                             (["--optimizer", "kfac", "--inner", "adam", "--beta1", "0.5", "--beta2", "0.6"], (0.5, 0.6))]:
            settings = training.optimizer_of(train_bert.parse(words), 0.1).settings()
            self.assertEqual((settings["beta1"], settings["beta2"]), betas)
        for words, message in [(["--optimizer", "sgd", "--beta1", "0.8"], "--beta1 belongs to adam, amsgrad, adamw, lamb"),
                               (["--beta2", "1"], r"--beta2 must be in \[0, 1\), got 1")]:
            with self.assertRaisesRegex(ValueError, message):
                training.optimizer_of(train_bert.parse(words), 0.1)


class Tracking(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_script(self, *words):
        return subprocess.run([sys.executable, str(ROOT / "python" / "train_bert.py"), *words], capture_output=True,
                              text=True, timeout=300, cwd=self.folder,
                              env={**os.environ, "PYTHONPATH": f"{self.folder}:{os.environ['PYTHONPATH']}"})

    @unittest.skipIf(importlib.util.find_spec("wandb"), "the package wandb is installed here")
    def test_the_package_is_named_if_it_is_missing(self):
        with self.assertRaisesRegex(ValueError, "--wandb needs the package wandb, which is not installed: use pip install"):
            train_bert.parse(["--wandb"])

    def test_every_step_is_logged(self):
        """A stand-in for the package writes what it is given to a file."""
        (self.folder / "wandb.py").write_text(
            "import json\nout = open('logged', 'w')\n"
            "def init(config):\n    print(json.dumps(config['seed']), file=out)\n    return __import__('wandb')\n"
            "def log(values, step):\n    print(json.dumps([step, values]), file=out)\n"
            "def finish():\n    print('done', file=out)\n    out.close()\n")
        self.addCleanup(sys.modules.pop, "wandb", None)
        write_prose(self.folder / "c.txt", 30)
        subprocess.run(["hetu", "data", "vocabulary", self.folder / "c.txt", "-o", self.folder / "vocab.txt", "--size",
                        "500"], check=True, stdout=subprocess.DEVNULL)
        done = self.run_script("--data", "c.txt", "--model", "tiny", "--steps", "3", "--batch-size", "4",
                               "--sequence-length", "16", "--wandb", "--seed", "7", "--log", "l.json", "--on_memory",
                               "--p2p_backend", "nccl")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        seed, *logged, end = (self.folder / "logged").read_text().splitlines()
        self.assertEqual((seed, end), ("7", "done"))
        wanted = [json.loads(line) for line in (self.folder / "l.json").read_text().splitlines()]
        found = [json.loads(line) for line in logged]
        self.assertEqual([[step, values["loss"]] for step, values in found],
                         [[record["step"], record["loss"]] for record in wanted])
        self.assertLessEqual({"learning_rate", "norm", "mlm_loss", "nsp_loss"}, set(found[0][1]))
        for line in ("--on_memory changes nothing: ", "--p2p_backend nccl changes nothing: HETU_TRANSPORT"):
            self.assertEqual(done.stdout.count(line), 1, done.stdout)


class Config(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name) / "run.yml"

    def test_a_file_overrides_flags_under_any_of_their_names(self):
        self.file.write_text("# a run\n---\nadam_learning_rate: 3e-4  # theirs\nweight-decay: '0.2'\ncased: true\n"
                             "steps: 4\n")
        args = train_bert.parse(["--learning-rate", "1", "--config", str(self.file), "--seed", "5", "--steps", "9"])
        self.assertEqual((args.learning_rate, args.weight_decay, args.cased, args.steps, args.seed), (3e-4, 0.2, True, 4, 5))
        self.file.write_text("cased: false\nno_overlap: false\n")
        args = train_bert.parse(["--cased", f"--config={self.file}"])
        self.assertEqual((args.cased, args.no_overlap), (False, False))

    def test_what_is_wrong_is_said_by_file_and_line(self):
        for text, message in [("\nlearning_rat: 3\n", "run.yml:2: unknown key 'learning_rat', learning-rate is one"),
                              ("config: x.yml\n", "run.yml:1: unknown key 'config'"),
                              ("steps: 3\nnum_optimization_steps: 4\n",
                               "run.yml:2: num_optimization_steps is already set in line"),
                              ("steps 3\n", "run.yml:1: 'steps 3' is not a line of the form"),
                              ("steps: a\n", "run.yml:1: steps: a is not a valid int"),
                              ("cased: 3\n", "run.yml:1: cased must be true or false, got 3"),
                              ("schedule: x\n", "run.yml:1: schedule must be one of constant, linear")]:
            self.file.write_text(text)
            with self.assertRaisesRegex(ValueError, re.escape(message)):
                train_bert.parse(["--config", str(self.file)])
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertNotEqual(train_bert_status(["--config", str(self.file) + ".none"]), 0)
        self.assertIn("run.yml.none", said.getvalue())
        self.assertEqual(said.getvalue().count("\n"), 1)


def train_bert_status(words):
    try:
        return train_bert.main(words)
    except SystemExit as end:
        return end.code


class Training(unittest.TestCase):
    def test_both_names_train_the_same(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            write_prose(folder / "c.txt", 30, encoding="latin-1", errors="ignore")
            subprocess.run(["hetu", "data", "vocabulary", folder / "c.txt", "--encoding", "latin-1", "-o",
                            folder / "vocab.txt", "--size", "500"], check=True, stdout=subprocess.DEVNULL)
            common = ["--encoding", "latin-1", "--optimizer", "bertadam"]
            ours = ["--data", "c.txt", "--model", "tiny", "--sequence-length", 32, "--batch-size", 8, "--micro-batches", 4,
                    "--steps", 4, "--learning-rate", "1e-3", "--schedule", "bert_linear", "--warmup-share", 0.1,
                    "--pipeline", "chimera", "--devices", "pipe_1_2", "--clip-norm", 1]
            theirs = ["--corpus_path", "c.txt", "--bert_config_path", "tiny", "--max_seq_length", 32,
                      "--micro_batch_size", 2,
                      "--gradient_accumulation_steps", 2, "--num_stages", 2, "--num_optimization_steps", 4,
                      "--adam_learning_rate", "1e-3", "--warmup_proportion", 0.1, "--pipeline_method", "chimera",
                      "--adam_max_grad_norm", 1, "--log_interval", 2, "--observe_norm", "--vocab_path", "vocab.txt"]
            losses, said = [], ""
            for words in (ours, theirs):
                command = [*HETURUN, "-w", 2, sys.executable, ROOT / "python" / "train_bert.py", *common, *words, "--log",
                           "l.json"]
                done = subprocess.run([str(w) for w in command], capture_output=True, text=True, timeout=600, cwd=folder)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                losses.append([json.loads(line)["loss"] for line in (folder / "l.json").read_text().splitlines()])
                said = done.stdout
            self.assertEqual(losses[0], losses[1])
            self.assertEqual(len(re.findall(r"epoch1 step[24] loss = [\d.]+ norm = [\d.]+\n", said)), 2, said)


if __name__ == "__main__":
    unittest.main(verbosity=2)

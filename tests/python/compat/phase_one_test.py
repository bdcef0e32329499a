"""BERT's first phase with the settings of PipeFisher's train.sh and train_kfac.sh (config/recipes). The full size's plan and
memory are printed, and a smaller model trains on a text."""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import train_bert
from prose_text import write_prose
from train_cases import HETURUN, ROOT

SCRIPT, RECIPES = ROOT / "python" / "train_bert.py", ROOT / "config" / "recipes"
BASE = ROOT / "config" / "models" / "bert_config_bert-base-uncased.json"


class PhaseOne(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        write_prose(cls.folder / "corpus.txt", 100)
        subprocess.run(["hetu", "data", "vocabulary", cls.folder / "corpus.txt", "-o", cls.folder / "vocab.txt", "--size",
                        "500"], check=True, stdout=subprocess.DEVNULL)
        cls.words = ["--data", "corpus.txt", "--vocab", "vocab.txt", "--pipeline", "1f1b"]

    def run_words(self, words, status=0):
        done = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=300, cwd=self.folder)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_the_settings_are_those_of_the_scripts(self):
        """Settings equal those of pipefisher.md, section 7: lr 6e-3, wd 0.01, 7038 steps; warm-up 0.2843 and 0.08525;
        damping 1e-3, every 10."""
        for name, share, kfac in (("lamb", 0.2843, None), ("kfac", 0.08525, (1e-3, 10, "lamb"))):
            args = train_bert.parse(["--config", str(RECIPES / f"phase1_{name}.yml"), "--steps", "7038"])
            rate = train_bert.rate_of(args)
            self.assertEqual((args.optimizer, args.learning_rate, args.weight_decay, args.clip_norm), (name, 6e-3, 0.01, 1))
            for step in (0, 599, 600, 1999, 2000, 2001, 7037):
                progress = (step + 1) / 7038
                wanted = 6e-3 * progress / share if progress < share else 6e-3 * (1 - progress) ** 0.5
                self.assertAlmostEqual(rate.at(step + 1), wanted, delta=1e-9, msg=f"{name}, step {step}")
            if kfac:
                self.assertEqual((args.damping, args.curvature_every, args.inner), kfac)

    def test_the_full_sizes_plan_and_memory_are_printed(self):
        for grid, stages, batch, micros in (("pipe_8_4", 4, 1024, 32), ("pipe_32_1", 1, 256, 8)):
            for name in ("lamb", "kfac"):
                said = self.run_words([sys.executable, SCRIPT, *self.words, "--plan-only", "--model", BASE, "--devices",
                                       grid, "--batch-size", batch, "--micro-batches", micros, "--steps", 7038, "--config",
                                       RECIPES / f"phase1_{name}.yml"])
                self.assertIn(f"{micros} micro-batches of 32 samples, 8192 per step; 7038 steps of {name}\n", said)
                share = {"lamb": "28.43", "kfac": "8.525"}[name]
                self.assertIn(f"over 7038 steps (warm-up of {share} %, polynomial of power 0.5 to 0 at step 7038)\n", said)
                columns = re.search("^stage +blocks .*", said, re.MULTILINE).group()
                self.assertEqual("kfac" in columns, name == "kfac", said)
                rows = re.findall(r"^(\d+) +\d+ +[\d,]+ .* ([\d.]+) ([GM])iB$", said, re.MULTILINE)
                self.assertEqual([int(stage) for stage, _, _ in rows], list(range(stages)), said)
                self.assertTrue(all(float(peak) > 0.5 for _, peak, _ in rows), said)

    def test_a_shrunk_model_trains(self):
        for name in ("lamb", "kfac"):
            said = self.run_words([*HETURUN, "-w", 2, sys.executable, SCRIPT, *self.words, "--model", "tiny", "--devices",
                                   "pipe_1_2", "--sequence-length", 32, "--batch-size", 16, "--micro-batches", 4, "--steps",
                                   12, "--log", "log.json", "--log_interval", 1, "--config", RECIPES / f"phase1_{name}.yml"])
            losses = [float(loss) for loss in re.findall(r"step\d+ loss = ([\d.]+)", said)]
            self.assertEqual(len(losses), 12, said)
            self.assertLess(sum(losses[-3:]), sum(losses[:3]), said)

    def test_a_plan_counts_in_its_dtype(self):
        activations = []
        for dtype in ("float32", "bf16-emulated"):
            said = self.run_words([sys.executable, SCRIPT, *self.words, "--plan-only", "--model", "tiny", "--dtype", dtype])
            activations.append(float(re.search(r"([\d.]+) MiB +[\d.]+ MiB +[\d.]+ MiB$", said, re.MULTILINE)[1]))
        self.assertLess(activations[1], 0.6 * activations[0])

    def test_what_has_no_plan_is_said(self):
        said = self.run_words([sys.executable, SCRIPT, *self.words, "--plan-only", "--model", "tiny", "--devices",
                               "mine"], 2)
        self.assertIn("--plan-only needs --devices pipe_<pipelines>_<stages> and a method, got --devices mine", said)


if __name__ == "__main__":
    unittest.main()

"""main_bert.py and main_bert_simple.py, the scripts of Chimera and PipeFisher, with their flags.

Each method learns the same, and any number of workers trains the same global batch. Covers the banner, output lines,
profiles as PDF, resuming, --config, and one-line errors."""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import train_bert
from hetu.compat import main_bert, main_bert_simple
from prose_text import write_prose
from train_cases import HETURUN, ROOT


class ScriptCase(unittest.TestCase):
    """A text, its vocabulary and runs of one script."""

    script: pathlib.Path

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.text, vocabulary = cls.folder / "corpus.txt", cls.folder / "vocab.txt"
        write_prose(cls.text, 40, encoding="latin-1", errors="ignore")
        subprocess.run(["hetu", "data", "vocabulary", cls.text, "--encoding", "latin-1", "-o", vocabulary, "--size", "500"],
                       check=True, stdout=subprocess.DEVNULL)
        cls.words = ["--corpus_path", cls.text, "--vocab_path", vocabulary, "--bert_config_path", "tiny", "--do_lower_case",
                     "--max_seq_length", 32, "--log_interval", 2]

    def start(self, workers, *more):
        command = [*HETURUN, "-w", workers, sys.executable, self.script, *self.words, *more]
        return subprocess.run([str(w) for w in command], capture_output=True, text=True, timeout=600, cwd=self.folder)

    def train(self, workers, *more):
        done = self.start(workers, *more)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertTrue(done.stdout.rstrip().endswith("Finished."), done.stdout)
        return done.stdout

    def losses(self, said):
        return re.findall(r"epoch(\d+) step(\d+) loss = ([\d.]+)", said)

    def refused(self, workers, message, *more):
        done = self.start(workers, *more)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        lines = [line for line in (done.stdout + done.stderr).splitlines() if f"{self.script.name}:" in line]
        self.assertEqual(len(set(lines)), 1, done.stdout + done.stderr)
        self.assertIn(message, lines[0])


class MainBert(ScriptCase):
    script = ROOT / "python" / "main_bert.py"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.words += ["--micro_batch_size", 2, "--adam_learning_rate", "1e-3"]

    def test_methods_learn_the_same_and_the_banner_says_where_stages_are(self):
        found = {}
        for method, workers, ranks in [
            ("gpipe", 4, ["[0]", "[1]", "[2]", "[3]"]), ("1f1b", 4, ["[0]", "[1]", "[2]", "[3]"]),
            ("interleave", 2, ["[0]", "[1]", "[0]", "[1]"]), ("chimera", 4, ["[0, 3]", "[1, 2]", "[1, 2]", "[0, 3]"]),
        ]:
            said = self.train(workers, "--pipeline_method", method, "--num_optimization_steps", 6)
            found[method] = [float(loss) for _, _, loss in self.losses(said)]
            self.assertEqual([(epoch, step) for epoch, step, _ in self.losses(said)], [("1", "2"), ("1", "4"), ("1", "6")])
            for line in [f"pipeline_method: {method}", f"world_size: {workers}", "recompute: False", "seed: 1",
                         *(f"stage{stage}: ranks {where}" for stage, where in enumerate(ranks))]:
                self.assertIn(f"{line}\n", said)
            two = method == "chimera"
            self.assertIn(f"num_replica: {2 if two else 1}\n", said)
            self.assertIn(f"num_micro_batches_per_step: {2 if two else 4}\n", said)
        for method, losses in found.items():
            for ours, gpipe in zip(losses, found["gpipe"], strict=True):
                self.assertAlmostEqual(ours, gpipe, delta=2e-5, msg=method)

    def test_the_published_cut(self):
        """Layers per stage: last <= first <= middle. The first and the last stage have one more block."""
        for layers, stages, blocks in ((24, 8, [4, 3, 3, 3, 3, 3, 3, 4]), (12, 4, [4, 3, 3, 4]),
                                       (24, 16, [2, 1, 1, 1, 1, 1, 1] + [2] * 8 + [2]),
                                       (12, 8, [2, 1, 1, 2, 2, 2, 2, 2]), (3, 3, [2, 1, 2]), (4, 1, [6])):
            self.assertEqual(main_bert.published_cut(layers, stages), blocks, (layers, stages))
        self.refused(8, "tiny has 4 layers, fewer than --num_stages 8", "--num_stages", 8, "--num_optimization_steps", 1,
                     "--partition", "published")

    def test_a_profile_is_drawn_under_its_published_name(self):
        said = self.train(4, "--pipeline_method", "chimera", "--profile", "--gradient_accumulation_steps", 2,
                          "--partition", "published")
        self.assertIn("blocks 2 + 1 + 1 + 2 as given", said)
        picture = self.folder / "bert_prof" / "tiny_chimera_4stages_4gpus_microbs2_acc2.pdf"
        self.assertTrue(picture.read_bytes().startswith(b"%PDF"))

    def test_kfac_runs_after_the_step_and_in_the_bubbles(self):
        found = []
        for where in (["--damping", 0.02], ["--damping", 0.02, "--fill", "best"]):
            said = self.train(2, "--num_stages", 2, "--profile", "--timelines", "--log_interval", 1, "--record_ngd", *where)
            found.append([float(loss) for _, _, loss in self.losses(said)])
        filled = subprocess.run(["hetu", "fill", *(self.folder / "bert_prof").glob("*_kfac_node*_timeline.pickle")],
                                capture_output=True, text=True)
        self.assertRegex(filled.stdout, r"^node0:\d+ pipeline iterations .*\nnode1:\d+ pipeline iterations .*\n$")
        for suffix in ("kfac", "pipefisher"):
            name = f"tiny_1f1b_2stages_2gpus_microbs2_acc1_{suffix}.pdf"
            self.assertTrue((self.folder / "bert_prof" / name).read_bytes().startswith(b"%PDF"), name)
        said = self.train(2, "--num_stages", 2, "--profile", "--log_interval", 1)
        plain = [float(loss) for _, _, loss in self.losses(said)]
        self.assertEqual(found[0][0], found[1][0])
        self.assertEqual(found[0][0], plain[0])
        self.assertNotEqual(found[0], plain)
        self.refused(2, "--timelines belongs to --profile", "--num_stages", 2, "--num_optimization_steps", 1, "--timelines")

    def test_goes_on_from_its_checkpoint(self):
        more = ["--num_stages", 2, "--checkpoint_dir", self.folder / "saved", "--save_checkpoint_steps", 2, "--observe_norm"]
        whole = self.train(2, "--num_stages", 2, "--num_optimization_steps", 8, "--warmup_proportion", 0)
        self.train(2, "--num_optimization_steps", 4, "--warmup_proportion", 0, *more)
        again = self.train(2, "--num_optimization_steps", 8, "--warmup_proportion", 0, *more)
        self.assertEqual([step for _, step, _ in self.losses(again)], ["6", "8"])
        self.assertRegex(again, r"loss = [\d.]+ norm = [\d.]+")
        # The first part decays its rate to the end after 4 steps, so the losses are near, not equal.
        self.assertAlmostEqual(float(self.losses(again)[-1][2]), float(self.losses(whole)[-1][2]), delta=0.3)

    def test_a_file_overrides_flags(self):
        config = self.folder / "run.yml"
        config.write_text("# as a run was\nnum_optimization_steps: 2\nnum_stages: 2  # few\nobserve_norm: true\n")
        said = self.train(2, "--config", config, "--num_stages", 4)
        self.assertIn("num_stages: 2\n", said)
        self.assertEqual(len(self.losses(said)), 1)
        for text, message in [("num_stages 3\n", "run.yml:1: 'num_stages 3' is not a line of the form `flag: value`"),
                              ("\nnum_stages: many\n", "run.yml:2: num_stages: many is not a valid int"),
                              ("recompute: 3\n", "run.yml:1: recompute must be true or false, got 3"),
                              ("pipeline_method: x\n", "run.yml:1: pipeline_method must be one of 1f1b, gpipe")]:
            config.write_text(text)
            self.refused(2, message, "--config", config)

    def test_the_first_line_is_the_global_batch(self):
        said = self.train(4, "--num_stages", 2, "--num_optimization_steps", 1)
        first = next(line for line in said.splitlines() if "computing on" not in line)
        self.assertEqual(first, "[0] global batch: 8 samples per step, 2 pipelines x 4, each in 2 micro-batches of 2")

    def test_wrong_flags_are_one_line(self):
        for workers, message, *more in [
            (2, "give --num_optimization_steps or --num_epochs"),
            (3, "3 workers can't be divided into pipelines of 4: --num_stages 4 needs heturun -w 4 or a multiple",
             "--num_epochs", 1),
            (4, "--num_stages 4 must be a multiple of --chunks 3", "--num_epochs", 1, "--pipeline_method", "interleave",
             "--chunks", 3),
            (4, "--num_pipelines 3: chimera runs two directions per pair, so give an even number",
             "--num_epochs", 1, "--pipeline_method", "chimera", "--num_pipelines", 3),
            (4, "--damping belongs to --record_ngd", "--num_epochs", 1, "--damping", 0.1),
            (4, "--micro_batch_size must be >= 1, got 0", "--num_epochs", 1, "--micro_batch_size", 0),
        ]:
            with self.subTest(message):
                self.refused(workers, message, *more)


class MainBertSimple(ScriptCase):
    script = ROOT / "python" / "main_bert_simple.py"

    def test_the_batch_is_that_of_all_workers(self):
        """The same flags give the same training for any number of workers."""
        for switches in ([], ["--adam"], ["--ngd_training", "--ngd_with_lamb", "--inv_interval", 2]):
            found = {}
            for workers, accumulation in ((1, 1), (2, 1), (2, 2)):
                said = self.train(workers, "--batch_size", 8, "--num_optimization_steps", 5, "--learning_rate", "1e-3",
                                  "--gradient_accumulation_steps", accumulation, *switches)
                self.assertEqual([step for _, step, _ in self.losses(said)], ["1", "3", "5"])
                found[workers, accumulation] = [float(loss) for _, _, loss in self.losses(said)]
                shares = {(1, 1): "", (2, 1): ", 2 pipelines x 4", (2, 2): ", 2 pipelines x 4, each in 2 micro-batches of 2"}
                first = next(line for line in said.splitlines() if "computing on" not in line)
                self.assertEqual(first.removeprefix("[0] "),
                                 f"global batch: 8 samples per step{shares[workers, accumulation]}")
                self.assertRegex(said, r"loss = ([\d.]+) \(([\d.]+) \+ ([\d.]+)\)\n")
            for losses in found.values():
                for loss, alone in zip(losses, found[1, 1], strict=True):
                    self.assertAlmostEqual(loss, alone, delta=2e-4, msg=f"{switches} {found}")

    def test_optimizers_are_those_of_the_script(self):
        base = ["--corpus_path", "t", "--vocab_path", "v", "--bert_config_path", "tiny", "--num_epochs", "1"]
        for switches, kind, settings in [
            ([], "lamb", {"schedule": "nvlamb", "learning_rate": 3e-5, "warmup_share": 0.1, "weight_decay": 0.01}),
            (["--adam"], "bertadam", {"schedule": "bert_linear", "clip_norm": 1.0, "beta2": 0.999}),
            (["--sgd"], "momentum", {"schedule": "nvlamb", "momentum": 0.9, "clip_norm": 0.0}),
            (["--ngd_training", "--ngd_learning_rate", "1e-2"], "kfac",
             {"inner": "momentum", "learning_rate": 1e-2, "damping": 0.01, "curvature_every": 1}),
            (["--ngd_training", "--ngd_with_lamb"], "kfac", {"inner": "lamb", "learning_rate": 3e-5}),
            (["--adam", "--ngd_training", "--ngd_with_adam"], "kfac", {"inner": "bertadam", "learning_rate": 3e-5}),
        ]:
            with self.subTest(switches):
                args = main_bert_simple.trainer(train_bert, main_bert_simple.parse([*base, *switches]))
                self.assertEqual((args.optimizer, args.batch_size, args.pipeline), (kind, 32, "dp"))
                for name, value in settings.items():
                    self.assertEqual(getattr(args, name), value, name)

    def test_wrong_flags_are_one_line(self):
        steps = ["--num_optimization_steps", 1]
        for workers, message, *more in [
            (1, "give --num_optimization_steps or --num_epochs"),
            (2, "--batch_size 9 is not divisible by 2 workers x --gradient_accumulation_steps 1; choose a multiple of 2",
             *steps, "--batch_size", 9),
            (1, "--batch_size must be >= 1, got 0", *steps, "--batch_size", 0),
            (1, "--adam and --sgd name two optimizers", *steps, "--adam", "--sgd"),
            (1, "--ngd_with_lamb and --ngd_with_adam belong to --ngd_training", *steps, "--ngd_with_lamb"),
            (1, "needs both --adam and --ngd_with_adam", *steps, "--adam", "--ngd_training"),
            (1, "--lars is not offered: use --optimizer lamb", *steps, "--lars"),
            (1, "--resume is not offered: --checkpoint_dir", *steps, "--resume", "x.pt"),
        ]:
            with self.subTest(message):
                self.refused(workers, message, *more)


if __name__ == "__main__":
    unittest.main()

"""The path of a user: profile a model, plan its training, run the plan, compare it with its prediction."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from hetu.profile import training as profile_training
from train_cases import HETURUN, MODEL, ROOT, TRAIN, write_shards

HETU = [str(ROOT / "build" / "bin" / "hetu")]


def run(*command, status=0, cwd=None):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=240, check=False, cwd=cwd)
    if done.returncode != status:
        raise AssertionError(f"status {done.returncode} of {command}: {done.stdout}\n{done.stderr}")
    return done


class Path(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        write_shards(self.folder / "data")
        (self.folder / "model.json").write_text(json.dumps(MODEL))
        self.model = ["--data", self.folder / "data", "--model", self.folder / "model.json", "--threads", "1"]

    def profile(self, *flags, sizes="1,2", status=0, script=TRAIN[1]):
        return run(sys.executable, "-m", "hetu.profile.training", "-o", self.folder / "profile.json", "--sizes", sizes,
                   "--steps", "3", *flags, script, *self.model, status=status)

    def test_profile_plan_run_compare(self):
        self.profile()
        profile = json.loads((self.folder / "profile.json").read_text())
        self.assertEqual(set(profile["micro_batch_sizes"]), {"1", "2"})
        blocks = profile["micro_batch_sizes"]["2"]["blocks"]
        for block in blocks:
            self.assertGreater(block["forward"], 0)
            self.assertGreater(block["gradient_bytes"], 0)
            self.assertGreaterEqual(block["weight_bytes"], 2 * block["gradient_bytes"])
        self.profile("-w", "2", sizes="4")  # adds a size, measured on two workers
        profile = json.loads((self.folder / "profile.json").read_text())
        self.assertEqual(list(profile["micro_batch_sizes"]), ["1", "2", "4"])
        self.assertEqual(len(profile["micro_batch_sizes"]["4"]["blocks"]), len(blocks))
        plan = self.folder / "plan.yml"
        planned = run(*HETU, "plan", "--costs", self.folder / "profile.json", "--workers", "2", "--global-batch", "16",
                      "--stages", "2", "--methods", "1f1b,zb-h1", "-o", plan)
        self.assertRegex(planned.stdout, "^plan: (1f1b|zb-h1), 1 pipeline x 2 stages, ")
        trained = run(*HETURUN, "-w", "2", *TRAIN, *self.model, "--config", plan, "--steps", "4", "--trace",
                      self.folder / "trace.json")
        self.assertIn("global batch: 16 samples", trained.stdout)
        compared = run(*HETU, "compare", self.folder / "trace.json")
        self.assertIn("predicted", compared.stdout)

    def test_order_of_workers(self):
        """A plan that exchanges two workers runs with the workers at these places."""
        self.profile(sizes="2")
        machines = self.folder / "machines.json"
        machines.write_text(json.dumps({"workers": [{"speed": 1}, {"speed": 2}], "link": {"latency": 0.01}}))
        plan = self.folder / "plan.yml"
        run(*HETU, "plan", "--costs", self.folder / "profile.json", "--machines", machines, "--global-batch", "8",
            "--stages", "2", "--methods", "1f1b", "-o", plan)
        text = plan.read_text()
        swapped = "devices: gpu:1/gpu:0" in text
        self.assertTrue(swapped or "devices: pipe_1_2" in text, text)
        plan.write_text(text.replace("pipe_1_2", "gpu:1/gpu:0"))
        trained = run(*HETURUN, "-w", "2", *TRAIN, *self.model, "--config", plan, "--steps", "2")
        self.assertIn("1f1b", trained.stdout)

    def test_bad_input(self):
        for flags, says in ((["--sizes", "0"], "--sizes must be >= 1"), (["--sizes", "a"], "whole numbers"),
                            (["--steps", "1"], "first step is a warm-up"), (["-w", "0"], "--workers must be >= 1")):
            done = run(sys.executable, "-m", "hetu.profile.training", "-o", self.folder / "p.json", *flags, TRAIN[1],
                       status=2)
            self.assertIn(says, done.stderr.splitlines()[-1])
        done = self.profile(script=str(ROOT / "nothing.py"), status=2)
        self.assertIn("no script", done.stderr)
        script = self.folder / "other.py"
        script.write_text("import sys; sys.exit('it broke')")
        done = self.profile(script=str(script), status=2)
        self.assertIn("ended with status 1: it broke", done.stderr)
        script.write_text("")
        done = self.profile(script=str(script), status=2)
        self.assertIn("wrote no trace", done.stderr)
        (self.folder / "profile.json").write_text("{}")
        done = self.profile(status=2)
        self.assertIn("is not a profile", done.stderr)
        self.assertEqual((self.folder / "profile.json").read_text(), "{}")


class Links(unittest.TestCase):
    def test_line_through_the_measured_times(self):
        def costs(size, ms):
            return {"stages": [{"bytes_out": size}, {"bytes_out": 0}], "link": {"latency": ms}}
        link = profile_training.links_of({1: costs(1000, 0.3), 2: costs(2000, 0.4), 4: costs(4000, 0.6)})
        self.assertAlmostEqual(link["latency"], 0.2)
        self.assertAlmostEqual(link["bandwidth"], 10000)
        flat = profile_training.links_of({1: costs(1000, 0.3), 2: costs(2000, 0.2)})
        self.assertAlmostEqual(flat["latency"], 0.25)
        self.assertEqual(flat["bandwidth"], 0)
        alone = {"stages": [{"bytes_out": 0}], "link": {"latency": 0}}
        self.assertEqual(profile_training.links_of({1: alone})["latency"], 0)


if __name__ == "__main__":
    unittest.main()

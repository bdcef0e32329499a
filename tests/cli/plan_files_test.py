"""Tests what the commands do with each other's files: plans of `hetu plan`, profiles and traces; the micro-batch size of
costs; and the suffixes that --help names."""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HETU = str(pathlib.Path(os.environ.get("HETU_BUILD_DIR", ROOT / "build")) / "bin" / "hetu")
PLAN = ("plan", "--costs", "profile.json", "--machines", "machines.json", "--global-batch", "16")


def block(size, share):
    """Returns the costs of a block for micro-batches of `size` samples."""
    ms = share * (size + 0.2)
    return {"forward": ms, "input_grad": ms, "weight_grad": ms, "recompute": ms, "weight": share, "bytes_out": 1000 * size,
            "activation_bytes": 1e6 * size, "weight_bytes": 4e6, "gradient_bytes": 1e6}


def costs_of(size):
    """Returns the costs of a model of six unequal blocks."""
    return {"stages": [{}], "blocks": [block(size, share) for share in (1, 2, 1, 1, 3, 1)],
            "link": {"latency": 0.01, "bandwidth": 1e6}}


class Files(unittest.TestCase):
    """Commands in a folder that holds a profile and machines of two speeds."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.write("profile.json", {"micro_batch_sizes": {str(size): costs_of(size) for size in (1, 2, 4)}})
        self.write("machines.json", {"workers": [{"speed": speed} for speed in (1, 0.5, 0.5, 1)],
                                     "link": {"latency": 0.2, "bandwidth": 1e6}})

    def write(self, name, value):
        (self.folder / name).write_text(json.dumps(value))

    def read(self, name):
        return json.loads((self.folder / name).read_text())

    def hetu(self, *words, status=0):
        done = subprocess.run([HETU, *words], capture_output=True, text=True, cwd=self.folder, timeout=300)
        self.assertEqual(done.returncode, status, f"{words}: {done.stdout}{done.stderr}")
        return done.stdout if status == 0 else done.stderr

    def test_a_found_plan_is_proved_simulated_and_rehearsed(self):
        """The commands of plans take the file of `hetu plan`: with its cut, its pipelines and the speeds of its workers."""
        self.hetu(*PLAN, "--stages", "2", "--pipelines", "2", "-o", "plan.json")
        plan = self.read("plan.json")["plan"]
        self.assertRegex(self.hetu("verify", "plan.json"), r"valid: 2 (stages|workers, \d+ stages)")
        simulated = json.loads(self.hetu("simulate", "plan.json", "--format", "json"))
        self.assertAlmostEqual(simulated["step_time"], plan["step_time"], delta=1e-6 * plan["step_time"])
        self.hetu("simulate", "plan.json", "--format", "trace", "-o", "trace.json")
        self.assertEqual([w["speed"] for w in self.read("trace.json")["metadata"]["costs"]["workers"]],
                         [(1, 0.5, 0.5, 1)[worker] for worker in plan["workers"]])
        by_profile = json.loads(self.hetu("simulate", "plan.json", "--costs", "profile.json", "--format", "json"))
        self.assertGreater(by_profile["step_time"], 0.5 * plan["step_time"])
        self.assertRegex(self.hetu("rehearse", "plan.json", "--repeat", "1"), rf"\nstep time +{plan['step_time']:.3f} ")
        self.assertIn("--stages: plan.json has the sizes", self.hetu("simulate", "plan.json", "--stages", "4", status=2))

    def test_files_of_another_kind_are_named(self):
        self.hetu(*PLAN, "-o", "plan.json")
        self.hetu("simulate", "1f1b", "--stages", "2", "--micro-batches", "2", "--format", "trace", "-o", "trace.json")
        for words, says in ((("timeline", "plan.json"), "It is a plan of `hetu plan`: `hetu simulate"),
                            (("timeline", "profile.json"), "It is a profile"),
                            (("verify", "profile.json"), "a profile of a model's costs, not a plan; pass it as --costs"),
                            (("verify", "trace.json"), "this is a trace, not a plan"),
                            (("simulate", "1f1b", "--stages", "2", "--micro-batches", "2", "--costs", "profile.json"),
                             "micro-batches of 1, 2, 4 samples; choose one with --micro-batch-size")):
            error = self.hetu(*words, status=2)
            self.assertIn(says, error)
            self.assertEqual(error.count("\n"), 1, error)

    def test_a_profile_is_the_costs_of_every_command(self):
        self.write("four.json", costs_of(4))
        for words in (("simulate", "1f1b", "--stages", "3", "--micro-batches", "4"),
                      ("choose", "--stages", "3", "--methods", "1f1b,zb-h1")):
            sizes = ("--micro-batch-size", "4")
            by_profile = json.loads(self.hetu(*words, "--costs", "profile.json", *sizes, "--format", "json"))
            alone = json.loads(self.hetu(*words, "--costs", "four.json", "--format", "json"))
            times = [one["step_time"] for one in (by_profile, alone)] if words[0] == "simulate" else \
                [one["ranked"][0]["step_time"] for one in (by_profile, alone)]
            self.assertEqual(*times)

    def test_the_size_of_micro_batches(self):
        """Costs of other sizes follow from the size that a trace or a cost file states. A trace without it is refused."""
        words = ("simulate", "1f1b", "--stages", "2", "--micro-batches", "2", "--costs", "four.json")
        self.write("four.json", costs_of(4))
        self.hetu(*words, "--format", "trace", "-o", "bare.json")
        trace = self.read("bare.json")
        trace["metadata"]["costs"]["samples_per_micro_batch"] = 4
        self.write("trace.json", trace)
        plan = ("plan", "--workers", "2", "--global-batch", "16", "--methods", "1f1b", "--stages", "2",
                "--micro-batch-sizes", "4", "--format", "json")
        stated = json.loads(self.hetu(*plan, "--costs", "trace.json"))["plan"]["step_time"]
        given = json.loads(self.hetu(*plan, "--costs", "bare.json", "--micro-batch-size", "4"))["plan"]["step_time"]
        self.assertEqual(stated, given)
        self.assertIn("doesn't say how many samples", self.hetu(*plan, "--costs", "bare.json", status=2))
        self.assertIn("has the costs of micro-batches of 4",
                      self.hetu(*plan, "--costs", "trace.json", "--micro-batch-size", "2", status=2))
        text = plan[:-2]
        self.assertIn("the costs are those of micro-batches of 4 samples", self.hetu(*text, "--costs", "trace.json"))
        choose = ("choose", "--stages", "2", "--methods", "1f1b", "--micro-batches", "4", "--costs")
        self.assertIn(" ms/micro-batch ", self.hetu(*choose, "bare.json"))
        self.assertIn(" ms/sample ", self.hetu(*choose, "trace.json"))

    def test_plan_says_what_it_has_written(self):
        for name in ("plan.json", "plan.txt", "plan.yml"):
            out = self.hetu(*PLAN, "-o", name)
            self.assertTrue(out.startswith("plan: "), out)
            self.assertTrue(out.endswith(f"{name} is written\n"), out)

    def test_places_methods_ruled_out_and_varying_costs(self):
        profile = self.read("profile.json")
        says = {"share": 0.4, "block": 3, "says": "the costs varied"}
        profile["variation"] = {"1": {"share": 0.1, "block": 0}, "2": says}
        self.write("profile.json", profile)
        out = self.hetu(*PLAN, "--stages", "2", "--pipelines", "2")
        self.assertIn("  place ", out)
        self.assertIn("numbers them by place", out)
        self.assertIn("note: the costs varied\n", out)
        self.assertRegex(out, r"\n  no plan of [a-z0-9-]+.*, [a-z0-9-]+.* can be faster than [0-9.]+ ms "
                              r"\(lower bounds; --each ")

    def test_help_names_the_suffixes_that_a_command_takes(self):
        self.hetu("simulate", "1f1b", "--stages", "2", "--micro-batches", "2", "--format", "trace", "-o", "trace.json")
        sizes = ("1f1b", "--stages", "2", "--micro-batches", "2")
        commands = (PLAN, ("choose", "--stages", "2"), ("schedule", *sizes), ("simulate", *sizes),
                    ("verify", *sizes), ("rehearse", *sizes, "--repeat", "1", "--time-unit", "1ms"),
                    ("compare", "trace.json"), ("timeline", "trace.json"))
        for command in commands:
            text = re.sub(r"\s+", " ", self.hetu(command[0], "--help"))
            named = set(re.findall(r"\.[a-z]+\b", re.search(r"-o FILE (.*?)(?: -[-a-z]|Exit|$)", text)[1]))
            for suffix in (".txt", ".csv", ".json", ".svg", ".pdf", ".png", ".html", ".yml"):
                done = subprocess.run([HETU, *command, "-o", f"out{suffix}"], capture_output=True, text=True,
                                      cwd=self.folder, timeout=300)
                self.assertEqual("unknown suffix" not in done.stderr, suffix in named, f"{command[0]} {suffix} {named}")


if __name__ == "__main__":
    unittest.main()

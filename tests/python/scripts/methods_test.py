"""Training with every kind of plan, in processes.

Covers several stages on a worker, replicas, recomputation, plan files and functions. Weights equal those of one process, and
a plan that can't be trained is refused before the first step.

The grid of methods and sizes is in tests/executor. This test covers scripts, devices and messages of processes."""
import json
import pathlib
import re
import subprocess
import unittest

from hetu import schedule
from train_cases import TrainCase, checksums, tensors

STEPS = 4
MICROS = ("--micro-batches", 8)
FUNCTION = '''
def backwards_last(stages, micro_batches):
    micros = range(micro_batches)
    return [[f"{s}{kind}{m}" for kind in "FIW" for m in micros] for s in range(stages)]
'''


class Methods(TrainCase):
    """One pipeline of tied BERT with dropout, compared with one process."""

    one = None  # (checkpoint, losses) of one process, made by the first test that needs them

    def alone(self):
        if Methods.one is None:
            folder = pathlib.Path(self.shared.name) / "alone"
            Methods.one = folder, self.train((1, 1), "--steps", STEPS, *MICROS, "--checkpoint", folder).losses
        return Methods.one

    def weights(self, grid, *options):
        folder = self.folder / f"many{self.jobs}"
        done = self.train(grid, "--steps", STEPS, *MICROS, *options, "--checkpoint", folder)
        return folder, done.losses

    def test_bitwise(self):
        expected, losses = self.alone()
        for options in [
            ("--pipeline", "interleaved-1f1b", "--chunks", 3), ("--pipeline", "zb-v", "--with-recompute"),
            ("--pipeline", "varuna"), ("--pipeline", "varuna", "--runtime-rule"), ("--pipeline", "1f1b", "--split-backward"),
        ]:
            with self.subTest(options=options):
                folder, got = self.weights((1, 2), *options)
                self.assertEqual(got, losses)
                self.assertEqual(checksums(folder), checksums(expected))

    def test_run_time_rule(self):
        """Forwards run before a late gradient, and the trace shows the order that was executed."""
        expected, losses = self.alone()
        trace = self.folder / "trace.json"
        folder, got = self.weights((1, 3), "--pipeline", "varuna", "--runtime-rule", "--trace", trace,
                                   "--slow", "worker=2,factor=8")
        self.assertEqual(got, losses)
        self.assertEqual(tensors(folder).keys(), tensors(expected).keys())
        events = [e for e in json.loads(trace.read_text())["traceEvents"] if e.get("ph") == "X"]
        for pid in (0, 1):  # predicted and measured: in row order, forward 3 of worker 1 comes after R1 B1 R2 B2
            at = {(a["kind"], a["micro"], a["step"]): e["ts"] for e in events if e["pid"] == pid and e["tid"] == 1
                  if (a := e["args"])}
            # In a step whose processes were delayed by the machine, a gradient may be on time.
            self.assertTrue(any(at["F", 3, step] < at["B", 1, step] for step in range(STEPS)), pid)
        report = json.loads(self.hetu("compare", trace, "--format", "json"))
        self.assertEqual(len(report["runs"]) + report["warm_up_runs"], STEPS)
        self.refused((1, 2), "--pipeline", "1f1b", "--runtime-rule", says="--runtime-rule does not apply to 1f1b")

    def test_replicas(self):
        expected, losses = self.alone()
        for grid, options in [((1, 4), ("--pipeline", "chimera", "--pairs", 2)), ((1, 2), ("--pipeline", "dualpipe")),
                              ((1, 2), ("--pipeline", "gems", "--sync", "end", "--with-recompute"))]:
            with self.subTest(options=options):
                folder, got = self.weights(grid, *options)
                for mine, other in zip(losses, got, strict=True):
                    self.assertAlmostEqual(mine, other, delta=1e-6 * mine)
                self.assertEqual(tensors(folder).keys(), tensors(expected).keys())

    def test_replicas_and_pipelines(self):
        options = ("--optimizer", "sgd", "--pipeline", "chimera", "--steps", STEPS)
        one = self.train((1, 1), *options[:2], "--steps", STEPS, "--batch-size", 16, *MICROS)
        trace = self.folder / "trace.json"
        two = self.train((2, 2), *options, "--batch-size", 8, "--micro-batches", 4, "--trace", trace)
        events = [e for e in json.loads(trace.read_text())["traceEvents"] if e.get("ph") == "X"]
        for kind in ("F", "B", "REDUCE_GRAD", "UPDATE"):  # measured and predicted counts are equal
            counts = [sum(e["pid"] == pid and e["args"]["kind"] == kind for e in events) for pid in (0, 1)]
            self.assertEqual(counts[0], counts[1], kind)
            self.assertGreater(counts[0], 0, kind)
        for mine, other in zip(one.losses, two.losses, strict=True):
            self.assertAlmostEqual(mine, other, delta=1e-6 * mine)

    def test_files_and_functions(self):
        expected, losses = self.alone()
        plan = self.folder / "mine.csv"
        subprocess.run(["hetu", "schedule", "zb-h2", "--stages", "2", "--micro-batches", "8", "--format", "csv", "-o", plan],
                       check=True)
        (self.folder / "plans.py").write_text(FUNCTION)
        for pipeline in (plan, "plans:backwards_last"):
            with self.subTest(pipeline=pipeline):
                folder, got = self.weights((1, 2), "--pipeline", pipeline)
                self.assertEqual(got, losses)
                self.assertEqual(checksums(folder), checksums(expected))

    def test_chooses_by_the_costs_of_a_run(self):
        trace, options = self.folder / "trace.json", ("--optimizer", "sgd", *MICROS)
        one = self.train((1, 2), *options, "--pipeline", "1f1b", "--steps", STEPS, "--trace", trace)
        report = json.loads(self.hetu("compare", trace, "--format", "json"))
        self.assertEqual(len(report["runs"]) + report["warm_up_runs"], STEPS)
        for method in ("zb-v", "chimera"):  # other cuts, by the costs of blocks
            self.hetu("simulate", method, "--stages", 2, *MICROS, "--costs", trace)
        two = self.train((1, 2), *options, "--pipeline", "choose", "--costs", trace, "--steps", STEPS)
        ranking = json.loads(self.hetu("choose", "--stages", 2, *MICROS, "--costs", trace, "--format", "json"))
        self.assertIn(f"pipeline choose: --pipeline {ranking['ranked'][0]['method']}", two.out)
        for mine, other in zip(one.losses, two.losses, strict=True):
            self.assertAlmostEqual(mine, other, delta=1e-6 * mine)

    def test_chooses_what_keeps_to_the_limit_once_compiled(self):
        trace, options = self.folder / "trace.json", (*MICROS, "--steps", 1)
        self.train((1, 2), *options, "--pipeline", "1f1b", "--trace", trace)
        ranked = schedule.ranked(stages=2, micro_batches=[8], costs=str(trace))
        first = [word for name, value in ranked[0].items() if name not in ("method", "with_recompute")
                 for word in (f"--{name}", value)] + ["--with-recompute"] * ranked[0]["with_recompute"]
        error = self.run_job((1, 2), *options, "--pipeline", ranked[0]["method"], *first, "--memory-limit", 1).err
        found = re.findall(r"needs [\d.]+ MiB \((\d+) bytes\), over the limit of 0.0 MiB \(1 bytes\):", error)
        needs = max(map(int, found), default=0)
        self.assertGreater(needs, 0, error)
        done = self.train((1, 2), *options, "--pipeline", "choose", "--costs", trace, "--memory-limit", needs - 1)
        said = re.findall(r"pipeline choose: --pipeline (.*)", done.out)
        self.assertGreater(len(said), 1, done.out)
        for line in said[:-1]:
            self.assertRegex(line, r" needs [\d.]+ MiB \(\d+ bytes\) in a worker, over the limit of [\d.]+ MiB "
                             rf"\({needs - 1} bytes\); trying the next method$")
        # The best method among those whose predicted memory is below the limit.
        best = schedule.ranked(stages=2, micro_batches=[8], costs=str(trace), memory_limit=f"{(needs - 1) / 1024}KiB")[0]
        self.assertTrue(said[0].startswith(best["method"]), said)
        self.refused((1, 2), *options, "--pipeline", "choose", "--costs", trace, "--memory-limit", 1,
                     says="pipeline choose: no ")

    def test_goes_by_costs(self):
        """The executed order equals that of `hetu schedule` with the same costs."""
        costs, trace = self.folder / "costs.json", self.folder / "trace.json"
        stage = {"forward": 1, "input_grad": 3, "weight_grad": 1}
        costs.write_text(json.dumps({"unit": "ms", "stages": [stage, {**stage, "forward": 4}]}))
        for method, *split in (("zb-2p",), ("1f1b", "--split-backward")):
            with self.subTest(method):
                self.train((1, 2), "--pipeline", method, *split, *MICROS, "--steps", 1, "--costs", costs, "--trace", trace)
                events = [e for e in json.loads(trace.read_text())["traceEvents"] if e.get("ph") == "X" and e["pid"] == 1]
                ran = [[f"{a['stage']}{a['kind']}{a['micro']}" for e in sorted(events, key=lambda e: e["ts"])
                        if e["tid"] == worker and (a := e["args"])["kind"] in ("F", "B", "I", "W")] for worker in (0, 1)]
                plans = []
                for more in (("--costs", costs), ()):
                    text = self.hetu("schedule", method, *split, "--stages", 2, *MICROS, *more, "--format", "csv")
                    plans.append([row.strip(",").split(",") for row in text.split()])
                self.assertEqual(ran, plans[0])
                self.assertNotEqual(ran, plans[1])
        self.refused((1, 2), "--pipeline", "1f1b", "--costs", costs, says="costs apply only to .*: zb-1p, zb-2p, auto")

    @staticmethod
    def hetu(*words):
        return subprocess.run(["hetu", *map(str, words)], capture_output=True, text=True, check=True).stdout

    def test_resumes_under_another_plan(self):
        folder, losses = self.alone()
        saved = self.folder / "saved"
        self.train((1, 2), "--pipeline", "zb-v", "--steps", 2, *MICROS, "--checkpoint", saved)
        names = {path.name for path in pathlib.Path(saved).rglob("*.safetensors")}
        self.assertEqual(names, {f"stage-{s}.safetensors" for s in range(4)})
        done = self.train((1, 2), "--pipeline", "chimera", "--steps", STEPS, *MICROS, "--checkpoint", saved, "--resume")
        for mine, other in zip(losses[2:], done.losses, strict=True):
            self.assertAlmostEqual(mine, other, delta=2e-6 * mine)


class Refused(TrainCase):
    """Plans that the verifier refuses before the first step."""

    def test_plans(self):
        def file(name, *rows):
            path = self.folder / name
            path.write_text("".join(row + "\n" for row in rows))
            return path

        whole = "0F0,0F1,0B0,0B1"
        for rows, says in [
            (("0F0,0F1,0B0", "1F0,1F1,1B0,1B1"), "plan is incomplete: 0B1 is missing"),
            (("0F0,0F1,0B0,0B1", "1F0,1B1,1F1,1B0"), "deadlock.*1B1"),
            ((whole, "1F0,1F1,1B0,1B1", "2F0,2F1,2B0,2B1"), "3 rows, but 2 workers"),
            (("0F0,0F1,0B0,0B1,0B1", "1F0,1F1,1B0,1B1"), "0B1"),
        ]:
            with self.subTest(rows=rows):
                plan = file("plan.csv", *rows)
                self.refused_at_once(says, "--pipeline", plan, "--micro-batches", 2)
        folded = self.folder / "folded.csv"  # 8 stages; the model's cut-points allow 6
        subprocess.run(["hetu", "schedule", "interleaved-1f1b", "--stages", "2", "--chunks", "4", "--micro-batches", "8",
                        "--format", "csv", "-o", folded], check=True)
        self.refused_at_once("8 stages do not fit: .* 1 to 6 stages", "--pipeline", folded, *MICROS)
        (self.folder / "plans.py").write_text(FUNCTION.replace("FIW", "FWI"))
        self.refused_at_once("0W0 ", "--pipeline", "plans:backwards_last", *MICROS)
        self.refused_at_once("nowhere:mine: No module named 'nowhere'", "--pipeline", "nowhere:mine")
        self.refused_at_once("worker 0 .* needs .* over the limit", "--pipeline", "zb-v", *MICROS, "--memory-limit", "1KiB")

    def refused_at_once(self, says, *options):
        """Checks that heturun itself refuses the job. No worker starts, so no line has a worker's tag."""
        done = self.run_job((1, 2), *options, "--steps", 1)
        self.assertEqual(done.code, 2, str(done))
        self.assertRegex(done.err, rf"(?s)\Atrain_bert.py: .*{says}.*\nheturun: refused before any worker was started\n\Z")
        self.assertNotRegex(done.err + done.out, r"(?m)^\[\d+\] ")
        self.assertEqual(done.steps, [])

    def test_options(self):
        self.refused((1, 2), "--pipeline", "hanayo", "--chunks", 4, says="8 stages do not fit: .* 1 to 6 stages")
        self.refused((1, 2), "--pipeline", "1f1b", "--pairs", 2, says="--pairs does not apply to 1f1b")


if __name__ == "__main__":
    unittest.main()

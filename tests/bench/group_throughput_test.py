"""tests/bench/group_throughput.py writes its table, CSV, JSON and figure, and its runs log valid groups.

The logs show properties of partial reduce and AD-PSGD: pipelines stop together, all their stages have equal counts, the mean
is kept, and the synchronization graph stays connected. Processes, coordinator and averages are real; devices wait for
milliseconds. No speed is asserted."""
import argparse
import csv
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
PERIOD = 10


def askers(group):
    """Returns {pipeline: its update} of the pipelines that asked for the group. The passive partner of AD-PSGD didn't ask.
    """
    members = dict(zip(group["members"], group["updates"], strict=True))
    initiator = group.get("initiator", -1)
    return members if initiator < 0 else {initiator: members[initiator]}


def run_of(log, updates):
    """Returns {stage: groups} of the last run in a log. Pipeline d did updates[d] in this run; the warm-up before it is left
    out."""
    groups = [json.loads(line) for line in log.read_text().splitlines()]
    last = [max(askers(g).get(pipeline, 0) for g in groups) for pipeline in range(len(updates))]
    stages = {}
    for g in groups:
        if all(u > last[d] - updates[d] for d, u in askers(g).items()):
            stages.setdefault(g["stage"], []).append(g)
    return stages


def joined(groups, pipelines):
    """Returns true if the groups connect all pipelines."""
    parts = [{d} for d in range(pipelines)]
    for g in groups:
        meet = [p for p in parts if p & set(g["members"])]
        parts = [p for p in parts if p not in meet] + [set().union(*meet)]
    return len(parts) == 1


class Medians(unittest.TestCase):
    """The benchmarks give the median of all attempts, whatever the prediction was."""

    def test_of_attempts(self):
        import group_throughput
        import rehearsed_methods
        for seed in range(50):
            values = [random.Random(seed).uniform(0.5, 1.5) for _ in range(1 + 2 * (seed % 3))]
            args = argparse.Namespace(attempts=len(values), sample=False, window=1.0)
            rate = [v * group_throughput.SAMPLE[0].pipelines / (group_throughput.FORWARD + group_throughput.BACKWARD)
                    for v in values]
            reports = [{"predicted": {"throughput": rate[0]}, "measured": {"throughput": r}} for r in rate]
            with mock.patch("group_throughput.rehearse", side_effect=reports), \
                    mock.patch("group_throughput.updates_for", return_value=1):
                figure = group_throughput.measure(group_throughput.SAMPLE[0], "all-reduce", args, 1.0)
            with mock.patch("rehearsed_methods.rehearse", side_effect=[{"ratio": v} for v in values]):
                job = argparse.Namespace(**vars(args), workers=2, micro_batches=4)
                result = rehearsed_methods.median_of("gpipe", job, [])
            for got in ((figure.measured, figure.least, figure.most), (result["ratio"], result["least"], result["most"])):
                for value, expected in zip(got, (statistics.median(values), min(values), max(values)), strict=True):
                    self.assertAlmostEqual(value, expected)


class GroupThroughput(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="hetu-throughput-")
        cls.addClassCleanup(folder.cleanup)
        cls.root = pathlib.Path(folder.name)
        words = [sys.executable, str(ROOT / "tests/bench/group_throughput.py"), "--sample", "--window", "2"]
        words += ["--csv", "t.csv", "--json", "t.json", "-o", "t.svg", "--logs", "logs"]
        cls.done = subprocess.run(words, cwd=cls.root, capture_output=True, text=True, check=False, timeout=600)
        assert cls.done.returncode == 0, cls.done.stdout + cls.done.stderr
        cls.figures = json.loads((cls.root / "t.json").read_text())

    def test_all_cells_are_there(self):
        cells = [(f["stages"], f["pipelines"], f["case"], f["method"]) for f in self.figures]
        self.assertEqual(len(set(cells)), 6)
        self.assertEqual(len(self.done.stdout.splitlines()), 1 + 6)
        for figure in self.figures:
            self.assertGreater(figure["measured"], 0)
            self.assertGreater(figure["simulated"], 0)
        with (self.root / "t.csv").open() as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([float(row["measured"]) for row in rows], [f["measured"] for f in self.figures])
        picture = xml.fromstring((self.root / "t.svg").read_text())
        bars = [e for e in picture.iter("{http://www.w3.org/2000/svg}rect") if e.get("height") == "11"]
        self.assertEqual(len(bars), 6)

    def test_pipelines_stop_together_and_keep_the_mean(self):
        grouped = [f for f in self.figures if f["method"] != "all-reduce"]
        self.assertEqual(len(grouped), 4)
        for f in grouped:
            with self.subTest(case=f["case"], method=f["method"]):
                wanted, extra = f["pipelines"] * f["wanted"], f["pipelines"] * (f["stages"] + 1)
                self.assertTrue(wanted <= sum(f["updates"]) <= wanted + extra, f)
                self.assertLess(f["mean_drift"], 1e-5)

    def test_logs(self):
        for f in self.figures:
            if f["method"] == "all-reduce":
                continue
            name = f"{f['stages']}x{f['pipelines']} {f['case']} {f['method']}.jsonl".replace(" ", "-")
            with self.subTest(log=name):
                self.check_log(run_of(self.root / "logs" / name, f["updates"]), f)

    def check_log(self, stages, figure):
        pipelines = figure["pipelines"]
        self.assertEqual(sorted(stages), list(range(figure["stages"])))
        for groups in stages.values():
            done = [0] * pipelines
            for g in groups:
                for d in askers(g):
                    done[d] += 1
            self.assertEqual(done, figure["updates"], "each update asks once, at every stage")
            if figure["method"] == "partial reduce":
                self.check_windows(groups, pipelines)
            else:
                self.check_pairs(groups)

    def check_windows(self, groups, pipelines):
        """Checks that every window of P N + N updates is connected."""
        for start in range(len(groups)):
            window, count = [], 0
            for g in groups[start:]:
                window.append(g)
                count += len(g["members"])
                if count >= PERIOD * pipelines + pipelines:
                    self.assertTrue(joined(window, pipelines), f"from group {start}: {window}")
                    break

    def check_pairs(self, groups):
        """Checks that active pipelines, which are even, ask passive ones, and that a passive pipeline's own update has one
        member."""
        for g in groups:
            self.assertIn(len(g["members"]), (1, 2))
            if len(g["members"]) == 2:
                self.assertEqual(g["initiator"] % 2, 0, g)
                self.assertEqual({d % 2 for d in g["members"]}, {0, 1}, g)


if __name__ == "__main__":
    unittest.main()

"""hetu.schedule gives the results of the command line, and accepts the user's own plans."""
import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import hetu
from hetu import schedule

SIZES = {"stages": 4, "micro_batches": 8}


def tool(*words, cwd=None):
    return subprocess.run(["hetu", *words], capture_output=True, text=True, check=True, cwd=cwd).stdout


def all_forwards_first(stages, micro_batches):
    micros = range(micro_batches)
    return [[f"{s}F{m}" for m in micros] + [f"{s}B{m}" for m in micros] for s in range(stages)]


def four_rows(stages, micro_batches):  # for any number of stages
    return all_forwards_first(4, micro_batches)


class Plans(unittest.TestCase):
    def test_every_method_is_the_command_lines(self):
        for method in schedule.methods():
            name = method["name"]
            with self.subTest(method=name):
                sizes = {**SIZES, "stages": 1} if method["stages"] == "P = 1" else SIZES
                words = ["--stages", str(sizes["stages"]), "--micro-batches", "8"]
                plan = schedule.generate(name, **sizes)
                self.assertEqual(plan.csv(), tool("schedule", name, *words, "--format", "csv"))
                self.assertEqual(len(plan.rows), sizes["stages"])
                self.assertEqual(plan.csv().splitlines()[0].split(",")[0].split(";")[0].lstrip("("), plan.rows[0][0])
                expected = json.loads(tool("simulate", name, *words, "--format", "json"))
                self.assertEqual(schedule.simulate(plan), expected)

    def test_a_functions_plan_has_its_name(self):
        """Traces, reports and errors call a plan as `hetu simulate` does, and not "rows"."""
        name = "schedule_test:all_forwards_first"
        self.assertEqual(schedule.generate(all_forwards_first, **SIZES).method, name)
        self.assertEqual(schedule.named(name, **SIZES).method, name)
        self.assertEqual(schedule.from_rows(all_forwards_first(**SIZES)).method, "rows")
        with self.assertRaisesRegex(ValueError, r"schedule_test:four_rows: the plan has 4 rows, but 5 workers were given"):
            schedule.named("schedule_test:four_rows", stages=5, micro_batches=8)

    def test_choosing_is_the_command_lines(self):
        words = ["--stages", "4", "--micro-batches", "8,16", "--memory-limit", "3"]
        expected = json.loads(tool("choose", *words, "--format", "json"))
        options = {"stages": 4, "micro_batches": [8, 16], "memory_limit": 3}
        self.assertEqual(schedule.choose(**options), expected)
        best = schedule.ranked(**options)[0]
        self.assertEqual(best.pop("method"), expected["ranked"][0]["method"])
        self.assertEqual(best.pop("with_recompute"), expected["ranked"][0]["recompute"])
        for name, value in best.items():
            self.assertEqual(value, expected["ranked"][0][name])
        pairs = schedule.ranked(stages=4, micro_batches=[4], methods=["chimera"])[0]
        self.assertEqual(pairs, {"method": "chimera", "with_recompute": False, "pairs": 2, "concat": "direct"})
        with self.assertRaisesRegex(ValueError, "no method is possible: dualpipe takes an even M"):
            schedule.ranked(stages=4, micro_batches=[4], methods=["dualpipe"])

    def test_options_have_the_command_lines_names(self):
        plan = schedule.generate("1f1b", **SIZES)
        times = {"forward": 10, "backward": 22.5, "latency": 0.3, "send_slots": 1, "speed": [1, 1, 0.5, 1]}
        words = ["--forward", "10", "--backward", "22.5", "--latency", "0.3", "--send-slots", "1", "--speed", "1,1,0.5,1"]
        expected = json.loads(tool("simulate", "1f1b", "--stages", "4", "--micro-batches", "8", *words, "--format", "json"))
        got = schedule.simulate(plan, events=True, **times)
        events = got.pop("events")
        self.assertEqual(got, expected)
        ends = [e["start_us"] + e["duration_us"] for e in events if e["kind"] in ("F", "B")]
        self.assertAlmostEqual(max(ends) / 1000, expected["makespan"], places=6)
        says = r"^schedule_test\.py:\d+: unknown option foward; did you mean 'forward'\?; `hetu schedule --help` lists them$"
        with self.assertRaisesRegex(ValueError, says):
            schedule.simulate(plan, foward=1)

    def test_a_plan_of_ones_own(self):
        plan = schedule.generate(all_forwards_first, **SIZES)
        self.assertEqual(plan.rows, all_forwards_first(**SIZES))
        gpipe = schedule.simulate(schedule.generate("gpipe", **SIZES))
        mine = schedule.simulate(plan)
        self.assertEqual(mine["makespan"], gpipe["makespan"])
        self.assertEqual(schedule.verify(plan)["peak_activations"], [8, 8, 8, 8])
        with self.assertRaisesRegex(ValueError, "2B7"):
            schedule.verify(schedule.from_rows([row[:-1] if s == 2 else row for s, row in enumerate(plan.rows)]))
        with self.assertRaisesRegex(ValueError, "4F.*"):
            schedule.from_rows([["0F0", "4F"]])

    def test_waves_on_several_pipelines_meet_at_servers(self):
        wave = schedule.generate("hetpipe", **SIZES, steps=6)
        self.assertEqual(schedule.verify(wave)["local_staleness"], 7)
        told = schedule.verify(wave, pipelines=2, staleness=1)
        self.assertEqual((told["local_staleness"], told["global_staleness"]), (7, 2 * 8 + 6))
        events = schedule.simulate(wave, pipelines=2, staleness=1, servers=2, events=True)["events"]
        for kind in ("PUSH", "PULL"):
            self.assertEqual(sum(e["kind"] == kind for e in events), 2 * 4 * 6)
        self.assertIn("0PUSH", schedule.lower(wave, sync_method="hetpipe").rows[0])
        for options, why in (({"sync_method": "allreduce"}, "'hetpipe' on 2 pipelines has weight versions by waves"),
                             ({"staleness": -2}, "staleness must be")):
            with self.assertRaisesRegex(ValueError, why):
                schedule.simulate(wave, pipelines=2, **options)
        with self.assertRaisesRegex(ValueError, "staleness is for pipelines that push to servers"):
            schedule.generate("gpipe", **SIZES, pipelines=2, staleness=1)

    def test_options_that_make_a_plan_are_refused_for_one_that_is_made(self):
        plan = schedule.generate("dualpipev", stages=4, micro_batches=10, pair_semantics="atomic")
        for option, value in {"stages": 2, "micro_batches": 4, "chunks": 2, "pairs": 2, "stage_replicas": [1, 2],
                              "concat": "halving", "replicas": 2, "steps": 2, "pair_semantics": "split",
                              "runtime_rule": True, "version_rule": "wave", "with_recompute": True}.items():
            for use in (schedule.verify, schedule.simulate, schedule.render):
                with self.assertRaisesRegex(ValueError, f": {option} goes into the making of a plan"):
                    use(plan, **{option: value})
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "plan.csv"
            file.write_text(plan.csv())
            split = schedule.generate("dualpipev", stages=4, micro_batches=10)
            self.assertEqual(schedule.read(str(file), pair_semantics="split").csv(), split.csv())

    def test_deadlock_and_memory(self):
        plan = schedule.generate("1f1b", **SIZES)
        schedule.verify(plan, send_slots=1)
        with self.assertRaisesRegex(ValueError, "deadlocks with 0 send slot"):
            schedule.verify(plan, send_slots=0)
        with self.assertRaisesRegex(ValueError, "worker 0"):
            schedule.verify(plan, memory_limit=3)

    def test_files_and_pictures(self):
        plan = schedule.generate("zb-h1", **SIZES)
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "plan.json"
            file.write_text(plan.json())
            self.assertEqual(schedule.read(file).rows, plan.rows)
            with self.assertRaises(OSError):
                schedule.read(pathlib.Path(folder) / "nowhere.csv")
        self.assertIn("0SEND_F0", schedule.lower(plan).csv())
        self.assertIn("<svg", schedule.render(plan, "svg"))
        with self.assertRaisesRegex(ValueError, r"plan\.csv\(\)"):
            schedule.render(plan, "csv")
        self.assertIn("[GPU util. ", schedule.render(plan, "svg", style="profile"))
        self.assertIn("const DATA = ", schedule.render(plan, "html"))
        with contextlib.suppress(NotImplementedError):  # a build without cairo
            self.assertEqual(schedule.render(plan, "pdf")[:5], b"%PDF-")
        self.assertIn("w3 |", schedule.render(plan))
        self.assertGreater(len(json.loads(schedule.render(plan, "trace"))["traceEvents"]), 3 * 4 * 8)
        self.assertIs(hetu.schedule, schedule)


class Page(unittest.TestCase):
    """The example of docs/add-a-schedule.md."""

    def test_the_example_is_shown_and_appears_in_every_command(self):
        root = pathlib.Path(__file__).resolve().parents[3]
        example = root / "docs" / "examples" / "own_schedule.py"
        page = (root / "docs" / "add-a-schedule.md").read_text()
        shown = page.split("```python\n")[1].split("```")[0]
        self.assertIn(shown, example.read_text())
        self.assertLessEqual(shown.count("\n"), 20)
        made = subprocess.run([sys.executable, str(example), "4", "8"], capture_output=True, text=True, check=True)
        self.assertIn("w3 |", made.stderr)
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "mine.csv"
            file.write_text(made.stdout)
            commands = [line.partition("#")[0].split() for line in page.splitlines() if line.startswith("hetu ")]
            self.assertEqual([command[2] for command in commands].count("mine.csv"), 5)
            places = {"mine.csv": str(file), "mine.svg": str(file.with_suffix(".svg"))}
            for _, command, *words in commands:
                with self.subTest(command=command, words=words):
                    self.assertTrue("mine.csv" in words or "own_schedule:two_by_two" in " ".join(words))
                    file.with_suffix(".svg").unlink(missing_ok=True)
                    quick = ["--repeat", "1"] if command == "rehearse" else []
                    out = tool(command, *(places.get(word, word) for word in words), *quick, cwd=example.parent)
                    self.assertTrue(out or file.with_suffix(".svg").exists())


if __name__ == "__main__":
    unittest.main()

"""Every command of `hetu` accepts a user's own function, MODULE:FUNCTION, where it takes a method."""
import json
import os
import pathlib
import pty
import shutil
import subprocess
import tempfile
import unittest

from hetu import schedule

SIZES = ["--stages", "2", "--micro-batches", "4"]
MODULE = '''
import hetu.schedule

def plain(stages, micro_batches):
    print("printed by the function")
    micros = range(micro_batches)
    return [[f"{s}F{m}" for m in micros] + [f"{s}B{m}" for m in micros] for s in range(stages)]

def plan(stages, micro_batches):
    return hetu.schedule.generate("1f1b", stages=stages, micro_batches=micro_batches)

def even(stages, micro_batches):
    if micro_batches % 4:
        raise ValueError("the number of micro-batches must be a multiple of 4")
    return plain(stages, micro_batches)

def broken(stages, micro_batches):
    return plain(stages, micro_batches) + 1

def wrong(stages, micro_batches):
    return [["0F0", "nonsense"]] * stages

def slow(stages, micro_batches):
    import time
    time.sleep(4)
    return plain(stages, micro_batches)

number = 3
'''
FOLDER = pathlib.Path(tempfile.mkdtemp())


def setUpModule():
    (FOLDER / "own.py").write_text(MODULE)


def tearDownModule():
    shutil.rmtree(FOLDER)


def hetu(*words, **environment):
    return subprocess.run([shutil.which("hetu"), *words], cwd=FOLDER, capture_output=True, text=True,
                          env={**os.environ, **environment})


class Commands(unittest.TestCase):
    def test_a_slow_command_shows_its_time_on_a_terminal(self):
        """The line is removed before the result is printed."""
        started = []
        for command in ("schedule", "verify", "simulate"):
            terminal, end = pty.openpty()
            words = [shutil.which("hetu"), command, "own:slow", *SIZES]
            started.append((command, terminal, subprocess.Popen(words, cwd=FOLDER, stdout=subprocess.PIPE, stderr=end,
                                                                text=True)))
            os.close(end)
        for command, terminal, process in started:
            out, _ = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 0)
            self.assertIn("0F0" if command == "schedule" else "own:slow", out)
            with open(terminal, "rb", closefd=True) as file:
                said = file.read1(1 << 16).decode()
            self.assertRegex(said, rf"^(printed by the function\r\n)?\rhetu {command}: 0:0\d")
            self.assertRegex(said, r"\r +\r$")

    def test_results_are_those_of_the_same_rows_in_a_file(self):
        (FOLDER / "own.csv").write_text("0F0,0F1,0F2,0F3,0B0,0B1,0B2,0B3\n1F0,1F1,1F2,1F3,1B0,1B1,1B2,1B3\n")
        for words in (["schedule"], ["schedule", "--lowered", "--format", "csv"], ["verify", "--send-slots", "2"],
                      ["simulate", "--latency", "0.5"], ["simulate", "--with-recompute", "--format", "json"]):
            with self.subTest(words=words):
                command, *more = words
                function, file = (hetu(command, source, *SIZES, *more) for source in ("own:plain", "own.csv"))
                self.assertEqual((function.returncode, function.stderr), (0, "printed by the function\n"))
                self.assertEqual(function.stdout.replace("own:plain", "own.csv"), file.stdout)

    def test_a_plan_of_hetu_may_be_returned(self):
        ours, own = (hetu("simulate", source, *SIZES, "--format", "json") for source in ("1f1b", "own:plan"))
        self.assertEqual((own.returncode, own.stdout), (0, ours.stdout), own.stderr)

    def test_a_trace_of_it_is_drawn(self):
        for words in (["simulate", "own:plain", *SIZES, "--format", "trace", "-o", "own.json"],
                      ["timeline", "own.json", "-o", "own.svg"],
                      ["rehearse", "own:plain", *SIZES, "--repeat", "1", "--time-unit", "1ms", "-o", "rehearsed.svg"]):
            done = hetu(*words)
            self.assertEqual(done.returncode, 0, done.stderr)
        for name in ("own.svg", "rehearsed.svg"):
            self.assertIn(">own:plain: 2 stages, 4 micro-batches", (FOLDER / name).read_text())

    def test_choose_ranks_it_among_methods(self):
        words = ["--methods", "own:even,gpipe", "--stages", "2", "--micro-batches", "4,6"]
        done = hetu("choose", *words, "--format", "json")
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        own = [one for one in found["ranked"] if one["method"] == "own:even"]
        same = [one for one in found["ranked"] if one["method"] == "gpipe" and one["micro_batches"] == 4]
        self.assertEqual([{**one, "method": ""} for one in own], [{**one, "method": ""} for one in same])
        self.assertEqual(len(own), 2)  # with and without recompute
        self.assertEqual([one["why"] for one in found["refused"]],
                         ["own:even: the number of micro-batches must be a multiple of 4"])
        before = os.getcwd()
        os.chdir(FOLDER)
        try:
            self.assertEqual(schedule.choose(methods=["own:even", "gpipe"], stages=2, micro_batches=[4, 6]), found)
        finally:
            os.chdir(before)

    def test_what_is_refused(self):
        for source, status, message in (
                ("nothing:plain", 2, "hetu simulate: pipeline nothing:plain: No module named 'nothing'"),
                ("own:nothing", 2, "hetu simulate: pipeline own:nothing: module 'own' has no attribute 'nothing'"),
                ("own:number", 2, "hetu simulate: pipeline own:number: number is not a function but int"),
                ("own:wrong", 2, "hetu simulate: own:wrong: "),
                ("own:broken", 2, "hetu simulate: own:broken: Python ended with status 1; see the lines above")):
            with self.subTest(source=source):
                done = hetu("simulate", source, *SIZES)
                self.assertEqual((done.returncode, done.stdout), (status, ""))
                self.assertTrue(done.stderr.splitlines()[-1].startswith(message), done.stderr)
                self.assertEqual("TypeError" in done.stderr, source == "own:broken")
                if not source.endswith(":wrong"):
                    chosen = hetu("choose", "--methods", source, "--stages", "2")
                    self.assertEqual((chosen.returncode, chosen.stdout), (status, ""))
                    self.assertIn(message.replace("simulate", "choose"), chosen.stderr)
        refused = hetu("simulate", "own:even", "--stages", "2", "--micro-batches", "6")
        self.assertEqual((refused.returncode, refused.stderr),
                         (2, "hetu simulate: own:even: the number of micro-batches must be a multiple of 4\n"))
        sizes = hetu("verify", "own:plain", "--stages", "2")
        self.assertIn("own:plain needs --stages P and --micro-batches M", sizes.stderr)
        with tempfile.TemporaryDirectory() as empty:
            alone = hetu("simulate", "own:plain", *SIZES, PATH=empty)
        self.assertEqual((alone.returncode, alone.stderr), (
            2, "hetu simulate: own:plain: python3 cannot be started, and this plan is a Python function\n"))


if __name__ == "__main__":
    unittest.main()

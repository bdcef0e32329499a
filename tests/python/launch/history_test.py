"""The files that heturun watch reads while they grow: the course of a loss (hetu/launch/history.py) and the ends of logs."""
import json
import math
import pathlib
import random
import shutil
import tempfile
import unittest

from hetu.launch import history, watched

SEED = 20261130


class FolderCase(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="history-")
        self.addCleanup(shutil.rmtree, self.folder)


class Kept(unittest.TestCase):
    """The points that heturun writes (history.Points)."""

    def points(self, times, loss=0.5):
        kept, lines = history.Points(), []
        for step, now in enumerate(times, 1):
            kept.take({"step": step, "loss": loss, "samples_per_s": None}, now, 1e9 + now)
            lines += kept.lines().decode().splitlines()
        lines += kept.lines(is_end=True).decode().splitlines()
        return [json.loads(line) for line in lines]

    def test_keeps_all_at_first_and_then_ever_fewer(self):
        """The number of points grows with the logarithm of the time. The last one is always kept."""
        for most_s in (100, 900, 3000):
            count = 10 * most_s
            points = self.points([i / 10 for i in range(count)])
            usual = count if most_s <= 1000 else history.DENSITY * (1 + math.log(most_s / 1000))
            self.assertLessEqual(len(points), usual + 1)
            self.assertGreater(len(points), 0.8 * usual)  # fewer, because a record every 0.1 s doesn't fit every interval
            self.assertEqual([points[0]["step"], points[-1]["step"]], [1, count])

    def test_keeps_every_slow_step(self):
        self.assertEqual(len(self.points([2.0 * i for i in range(5000)])), 5000)

    def test_numbers(self):
        self.assertEqual(self.points([1.0]), [{"step": 1, "loss": 0.5, "time": 1e9 + 1}])
        self.assertEqual(self.points([1.0], math.nan)[0]["loss"], None)
        self.assertNotIn("loss", self.points([1.0], None)[0])


class Read(FolderCase):
    """The points that the page reads (history.Course)."""

    def setUp(self):
        super().setUp()
        self.file = pathlib.Path(self.folder, history.HISTORY)
        self.course = history.Course(str(self.file))

    def write(self, points, mode="w"):
        with open(self.file, mode) as file:
            for step, loss in points:
                file.write(json.dumps({"step": step, "loss": loss}) + "\n")
        self.course.update()

    def test_reads_a_growing_file_by_whole_lines(self):
        self.course.update()
        self.assertEqual(self.course.steps, [])
        self.write([(1, 4.0), (2, 3.0)])
        with open(self.file, "a") as file:
            file.write('{"step": 3, "lo')
            file.flush()
            self.course.update()
            self.assertEqual(self.course.steps, [1, 2])
            file.write('ss": 2.0}\n')
        self.course.update()
        self.assertEqual((self.course.steps, self.course.losses), ([1, 2, 3], [4.0, 3.0, 2.0]))
        self.write([(7, 1.0)])  # another file, or one that became shorter
        self.assertEqual(self.course.steps, [7])

    def test_steps_that_are_done_again_replace_the_first_ones(self):
        self.write([(step, 1.0) for step in range(1, 11)])
        self.write([(5, 2.0), (6, 2.0)], "a")
        self.assertEqual(self.course.steps, [1, 2, 3, 4, 5, 6])
        self.assertEqual(self.course.losses[-2:], [2.0, 2.0])

    def test_ignores_lines_that_are_no_points(self):
        self.file.write_text('{"step": 1, "loss": 2.0}\n{"step"\n[1]\nnull\n{"step": "2"}\n\n{"loss": 1}\n{"step": 3}\n'
                             + "[" * 100000 + "\n" + '{"step": 4, "loss": null}\n{"step": 5, "loss": NaN}\n')
        self.course.update()
        self.assertEqual(self.course.steps, [1, 3, 4, 5])
        self.assertEqual(self.course.not_numbers(), [4, 5, 2])
        self.assertEqual(self.course.thinned(9), [[1, 1, 2.0, 2.0, 2.0], *([n, n, None, None, None] for n in (3, 4, 5))])

    def test_thins_100000_points_out(self):
        """The groups cover all points in order, and keep the least and the most loss."""
        draw = random.Random(SEED)
        points = [(10 * i + draw.randrange(10), draw.uniform(1, 2)) for i in range(100_000)]
        points[777] = points[777][0], 0.25
        points[55_555] = points[55_555][0], 9.0
        self.write(points)
        for most in (2, 7, 600):
            with self.subTest(most=most, seed=SEED):
                groups = self.course.thinned(most)
                self.assertEqual(len(groups), most)
                self.assertEqual((groups[0][0], groups[-1][1]), (points[0][0], points[-1][0]))
                self.assertEqual(min(group[2] for group in groups), 0.25)
                self.assertEqual(max(group[4] for group in groups), 9.0)
                for before, after in zip(groups, groups[1:], strict=False):
                    self.assertLess(before[1], after[0])
                for first, last, least, mean, largest in groups[:: most // 2]:
                    there = [loss for step, loss in points if first <= step <= last]
                    self.assertEqual((least, largest), (min(there), max(there)))
                    self.assertAlmostEqual(mean, sum(there) / len(there))


class Ends(FolderCase):
    """The ends of logs (watched.Log)."""

    def setUp(self):
        super().setUp()
        self.file = pathlib.Path(self.folder, "worker-0.log")
        self.log = watched.Log(self.file)

    def test_a_line_without_an_end_waits_for_it(self):
        stamp = "2026-11-30 20:47:54.547 "
        self.file.write_text(f"{stamp}whole\n{stamp}! ha")
        lines, at, cut = self.log.tail(None, False)
        self.assertEqual((lines, cut), ([["20:47:54.547", False, "whole"]], False))
        self.assertEqual(self.log.tail(at, False), ([], at, False))
        self.assertEqual(self.log.tail(at, True)[0], [["20:47:54.547", True, "ha"]])
        with open(self.file, "a") as file:
            file.write("lf\n")
        self.assertEqual(self.log.tail(at, False), ([["20:47:54.547", True, "half"]], self.file.stat().st_size, False))

    def test_long_logs_are_read_from_near_their_end(self):
        self.file.write_text("".join(f"line {i}\n" for i in range(200_000)))
        lines, at, cut = self.log.tail(None, False)
        self.assertTrue(cut)
        self.assertEqual(lines[-1][2], "line 199999")
        self.assertRegex(lines[0][2], r"^line \d{6}$")
        self.assertTrue(self.log.tail(1, False)[2], "far behind")
        self.assertFalse(self.log.tail(at - 700, False)[2])
        self.file.write_text("again\n")
        self.assertEqual(self.log.tail(at, False), ([["", False, "again"]], 6, False))
        self.file.unlink()
        self.assertEqual(self.log.tail(at, False), ([], 0, False))

    def test_texts_are_made_harmless(self):
        cases = {b"\x1b[31mred\x1b[0m": "red", b"10 %\r20 %": "20 %", b"10 %\r": "10 %", b"a\tb": "a    b",
                 b"\xff\x00<b>": "\ufffd<b>", b"x" * 5000: "x" * 2000 + " \u2026"}
        for line, text in cases.items():
            with self.subTest(line=line[:20]):
                self.assertEqual(watched.line_of(line), ["", False, text])


if __name__ == "__main__":
    unittest.main()

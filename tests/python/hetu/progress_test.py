"""The progress bar and its lines with a simulated clock, frames and lines of a guard, and networks of several hosts."""
import io
import json
import os
import random
import re
import shutil
import unittest
from unittest import mock

from hetu import progress
from hetu.launch import environment, frames, network
from hetu.launch.mpirun import Mpirun


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


class Display(unittest.TestCase):
    def make(self, terminal):
        self.clock, self.out = Clock(), io.StringIO()
        return progress.Reporter(200, display=progress.Display(self.out, terminal, self.clock), clock=self.clock)

    def test_elsewhere_one_line_every_10_s_and_one_at_the_end(self):
        report = self.make(terminal=False)
        for step in range(1, 201):
            self.clock.now = step * 0.2  # 40 s in total
            report.update(step, loss=6 - step / 100, samples_per_s=160, tokens_per_s=20480, extra={"bubble": 0.25})
        report.close()
        lines = self.out.getvalue().splitlines()
        self.assertEqual([re.match(r"step (\d+)/200 \((\d+) %\)", line).groups() for line in lines],
                         [("50", "25"), ("100", "50"), ("150", "75"), ("200", "100")])
        self.assertEqual(lines[0], "step 50/200 (25 %): loss 5.5000, 160 samples/s, 20.5k tokens/s, bubble 0.25, "
                                   "ETA 0:30")
        self.assertTrue(lines[-1].endswith("ETA 0:00"))

    def test_a_bar_fits_every_width_and_is_cleared_whole(self):
        report = self.make(terminal=True)
        for columns in range(10, 200, 7):
            with mock.patch.object(shutil, "get_terminal_size", return_value=os.terminal_size((columns, 24))):
                for step in (0, 1, 99, 200):
                    self.clock.now += 1
                    report.update(step, loss=1.25, samples_per_s=1e6, tokens_per_s=2.5e7)
                    self.assertLess(len(report._display.bar(columns)), columns)
        written = self.out.getvalue()
        self.assertNotIn("\n", written)
        report._display.clear()
        self.assertRegex(self.out.getvalue()[len(written):], r"^\r +\r$")
        report.close()
        self.assertTrue(self.out.getvalue().endswith("\n"))

    def test_the_last_update_is_shown_even_if_it_came_too_soon(self):
        report = self.make(terminal=False)
        report.update(1)
        report.update(2, loss=3.5)
        report.close()
        self.assertEqual(self.out.getvalue(), "step 2/200 (1 %): loss 3.5000\n")

    def test_without_a_total_and_with_nan(self):
        display = progress.Display(out := io.StringIO(), False, Clock())
        display.show({"step": 7, "total": 0, "loss": float("nan")})
        display.close()
        self.assertEqual(out.getvalue(), "step 7: loss nan\n")

    def test_words(self):
        self.assertEqual([progress.quantity(v) for v in (0.5, 812, 4210, 1.05e6, 3e9)],
                         ["0.5", "812", "4.21k", "1.05M", "3G"])
        self.assertEqual([progress.duration(v) for v in (0.4, 65, 7389)], ["0:00", "1:05", "2:03:09"])


class Records(unittest.TestCase):
    def test_go_to_the_descriptor_first_pid_then_steps_last_closed(self):
        source, target = os.pipe()
        clock = Clock()
        with progress.Reporter(1000, fd=target, clock=clock) as report:
            for step in range(1, 1001):
                clock.now += 0.01  # 10 s: at most ten records per second
                report.update(step, loss=1.0)
        os.close(target)
        with os.fdopen(source) as file:
            records = [json.loads(line) for line in file]
        self.assertEqual(records[0], {"pid": os.getpid()})
        self.assertEqual(records[-1], {"closed": True})
        self.assertEqual(records[-2]["step"], 1000)
        self.assertLessEqual(len(records), 104)

    def test_a_closed_descriptor_harms_nothing(self):
        source, target = os.pipe()
        report = progress.Reporter(10, fd=target)
        os.close(source)
        report.update(1)
        report.close()
        os.close(target)


class Streams(unittest.TestCase):
    def setUp(self):
        self.seed = int(os.environ.get("SEED", random.randrange(2**32)))
        self.draw = random.Random(self.seed)

    def pieces(self, data):
        while data:
            size = self.draw.randint(1, 40)
            yield data[:size]
            data = data[size:]

    def test_frames_survive_any_cutting(self):
        for _ in range(50):
            sent = [(self.draw.choice(b"HSOEPXB"), self.draw.randbytes(self.draw.randint(0, 90))) for _ in range(20)]
            reader, got = frames.Frames(), []
            for piece in self.pieces(b"".join(frames.pack(*frame) for frame in sent)):
                got += reader.feed(piece)
            self.assertEqual(got, sent, f"SEED={self.seed}")

    def test_a_foreign_stream_is_refused_before_anything_is_held(self):
        with self.assertRaisesRegex(ValueError, "at most"):
            list(frames.Frames().feed(b"GET / HTTP/1.1\r\n"))

    def test_lines_come_whole(self):
        for _ in range(50):
            text = bytes(self.draw.choice(b"ab\n") for _ in range(200)) + b"end"
            lines, got = frames.Lines(), []
            for piece in self.pieces(text):
                out = lines.feed(piece)
                self.assertTrue(not out or out.endswith(b"\n"), f"SEED={self.seed}")
                got.append(out)
            self.assertEqual(b"".join(got) + lines.flush(), text + b"\n", f"SEED={self.seed}")

    def test_an_endless_line_is_cut(self):
        lines, out = frames.Lines(), b""
        for _ in range(40):
            out += lines.feed(b"x" * 65536)
        self.assertGreater(out.count(b"\n"), 0)


class Network(unittest.TestCase):
    def test_common_network(self):
        self.assertEqual(network.common_network(["10.1.2.3", "10.1.2.200"]), "10.1.2.0/24")
        self.assertEqual(network.common_network(["10.1.2.1", "10.1.2.1"]), "10.1.2.0/30")
        self.assertEqual(network.common_network(["10.1.0.1", "10.1.255.1"]), "10.1.0.0/16")
        self.assertIsNone(network.common_network(["10.1.0.1", "10.2.0.1"]))

    def test_shared_network_takes_this_hosts_fitting_address(self):
        names = {"w0": "127.0.1.1", "w1": "10.1.2.7", "w2": "10.1.2.9", "far": None}
        own = {"lo": "127.0.0.1", "eth0": "192.168.0.5", "ib0": "10.1.2.5"}
        with mock.patch.object(network, "resolve", names.get):
            self.assertEqual(network.shared_network(["w0", "w1", "w2"], own),
                             ("10.1.2.0/28", ["10.1.2.5", "10.1.2.7", "10.1.2.9"]))
            self.assertEqual(network.shared_network(["w1", "w2"], own)[0], "10.1.2.0/28")
            self.assertEqual(network.shared_network(["w1", "far"], own), (None, ["10.1.2.7", None]))

    def test_the_command_line_for_several_hosts(self):
        mpirun = Mpirun.__new__(Mpirun)
        mpirun.path, mpirun.major = "mpirun", 4
        nodes = [{"host": "w0", "workers": 8}, {"host": "w1", "workers": 4}, {"host": "w2", "workers": 0}]
        argv = mpirun.start(nodes) + mpirun.remote("key", "10.0.0.0/24", ["HETU_JOB"], 0)
        text = " ".join(argv)
        for part in ("--host " + "w0," * 8 + "w1,w1,w1,w1 -np 12", "--bind-to none", "btl_tcp_if_include 10.0.0.0/24",
                     "oob_tcp_if_include 10.0.0.0/24", "-x HETU_JOB", "btl self,vader,tcp"):
            self.assertIn(part, text)
        self.assertIn("-o BatchMode=yes -o ConnectTimeout=10 -i key", argv)
        self.assertIn("plm rsh", text)
        self.assertNotIn("isolated", text)
        self.assertNotIn("tmpdir_base", text)  # with several mpiruns, all except the first have their own folder
        self.assertIn("orte_tmpdir_base", " ".join(mpirun.remote("key", None, [], 1)))

    def test_what_an_enclosing_job_left_is_not_inherited(self):
        left = {"OMPI_COMM_WORLD_RANK": "3", "PMIX_RANK": "3", "HETU_JOB": "x", "OMPI_MCA_btl": "self", "DMLC_ROLE": ""}
        got = environment.worker_environment(left, [{"host": "localhost", "workers": 2}], ["x"], 0)
        self.assertEqual({k for k in got if k in left}, {"OMPI_MCA_btl", "DMLC_ROLE"})
        self.assertEqual(got["HETU_HOSTS"], "localhost:2")


if __name__ == "__main__":
    unittest.main()

"""Ends of scripts that are workers.

A script ends in order whatever objects it keeps, and by every error and exit that one worker alone may take. The job ends
soon, with that worker's status and only its traceback.

`exit_test.py --whole` tries all ways instead of a sample, and every worker."""
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import uuid
from unittest import mock

from hetu.launch import frames, guard
from processes import processes_with, wait_until
from train_cases import END_S, HETURUN, MANY_S

WHOLE = "--whole" in sys.argv
SCRIPT = str(pathlib.Path(__file__).with_name("small_job.py"))
FOREVER = 1000000
COMM = 5  # as in hetu.process.errors
LEFT = r"CommError: .*worker {who} has left the job: its script ended in the middle of job\.run\('train', until=\d+\)"
# For each kind of end: exit status, pattern of standard error, number of tracebacks.
WAYS = {
    "in the loop": (1, r"KeyError: 'died in the loop'\n", 1),
    "exit": (COMM, LEFT, 1),
    "interrupt": (130, r"KeyboardInterrupt\n", 1),
    "break": (COMM, LEFT, 1),
    "before the job": (1, r"KeyError: 'died before the job'\n", 1),
    "before the first step": (1, r"KeyError: 'died before the first step'\n", 1),
    "exit 3": (3, r"worker {who} \(\S+, pid \d+\) exited with status 3", 0),
    "exit without a word": (COMM, r"worker {who} \(.*\) exited with status 0 without leaving the job", 0),
    "in a thread": (1, r"KeyError: 'died in the loop'\n", 1),
    "beside a thread": (1, r"KeyError: 'died beside a thread'\n", 1),
}
SAMPLE = list(WAYS)[:3]


class ExitCase(unittest.TestCase):
    """A test that starts jobs. At its end, no process of them may be left."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="hetu-exit-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.mark = "EXIT_TEST_MARK=" + uuid.uuid4().hex
        self.addCleanup(self.check_nothing_runs)
        name, value = self.mark.split("=")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("OMPI_MCA_rmaps")}
        paths = os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))
        self.env.update({name: value, "PYTHONPATH": paths, "OMP_WAIT_POLICY": "passive"})

    def check_nothing_runs(self):
        self.assertTrue(wait_until(lambda: not processes_with(self.mark), END_S), "processes left")

    def run_job(self, workers, *words):
        """Runs a job. Returns (status, standard output, standard error, seconds to the job's end). The seconds count from
        the last line with `step 12` or `up`, or from the start of the job if there is none."""
        process = subprocess.Popen([*HETURUN, "-w", str(workers), sys.executable, *map(str, words)], env=self.env, text=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.folder)
        since, lines = time.monotonic(), []
        for line in process.stdout:
            lines.append(line)
            if "step 12 " in line or "] up " in line:
                since = time.monotonic()
        error = process.communicate(timeout=MANY_S)[1]
        return process.returncode, "".join(lines), error, time.monotonic() - since


class Finished(ExitCase):
    def check(self, workers, *words):
        status, out, error, _ = self.run_job(workers, *words)
        self.assertEqual(status, 0, error)
        self.assertNotIn("leaked", error)
        self.assertNotIn("Traceback", error)
        return out

    def test_whatever_the_script_keeps(self):
        for workers in (1, 2, 4) if WHOLE else (4,):
            with self.subTest(workers=workers):
                self.assertIn("step 19 ", self.check(workers, SCRIPT, "1f1b", "-", 0, 20))

    def test_all_break_out_of_their_loops(self):
        script = self.folder / "script.py"
        text = pathlib.Path(SCRIPT).read_text()
        script.write_text(text.replace("if ME and step.index == 12", "if step.index == 12"))
        self.check(2, script, "1f1b", "break", 0, 1000)

    def test_a_job_that_is_closed_still_says_how_far_it_came(self):
        script = self.folder / "script.py"
        script.write_text(pathlib.Path(SCRIPT).read_text() + "ht.close()\nprint('chief', job.is_chief, job.step)\n"
                          "try:\n    job.job.state()\nexcept RuntimeError as error:\n    print(error)\n")
        out = self.check(2, script, "1f1b", "-", 0, 3)
        self.assertIn("[0] chief True 3\n", out)
        self.assertIn("[1] chief False 3\n", out)
        self.assertEqual(out.count("'state' is not available: this worker has left the job"), 2)


class Failed(ExitCase):
    def check(self, ended, status, says, tracebacks):
        code, _, error, seconds = ended
        self.assertRegex(error, says)
        self.assertEqual(code, status, error)
        self.assertEqual(error.count("Traceback"), tracebacks, error)
        self.assertNotIn("leaked", error)
        self.assertLess(seconds, END_S, error)

    def test_one_worker_alone(self):
        for number, (how, (status, says, tracebacks)) in enumerate(WAYS.items()):
            for who in (0, 1) if WHOLE else (number % 2,):
                if WHOLE or how in SAMPLE:
                    with self.subTest(how=how, who=who):
                        ended = self.run_job(3 if WHOLE else 2, SCRIPT, "1f1b", how, who, FOREVER)
                        self.check(ended, status, says.replace("{who}", str(who)), tracebacks)

    def test_after_the_last_step(self):
        ended = self.run_job(2, SCRIPT, "1f1b", "after the last step", 1, 14)
        self.check(ended, 1, r"KeyError: 'died after the last step'\n", 1)

    def test_all_workers_alike_speak_once(self):
        scripts = (("def f(:\n", r"SyntaxError: .*\n", 0), ("raise KeyError('in all')", r"KeyError: 'in all'\n", 1),
                   ("import no_such", "No module named", 1))
        for text, says, tracebacks in scripts if WHOLE else scripts[:2]:
            with self.subTest(text=text):
                script = self.folder / "script.py"
                script.write_text(text)
                ended = self.run_job(3, script)
                self.check(ended, 1, says, tracebacks)
                self.assertEqual(ended[2].count("Error: "), 1, ended[2])

    def test_errors_in_one_line_are_said_once_however_long_a_worker_takes_to_end(self):
        script = self.folder / "script.py"
        script.write_text("import atexit, os, time\nimport hetu as ht\natexit.register(time.sleep, 2.5)\n"
                          "with ht.one_line_errors('script.py'):\n"
                          "    raise ValueError(f'told wrong {ht.job_info().worker}')\n")
        ended = self.run_job(3, script)
        self.check(ended, 2, r"(?m)^\[\d\] script\.py: told wrong \d$", 0)
        self.assertEqual(ended[2].count("told wrong"), 1, ended[2])

    def test_a_traceback_that_is_not_the_end_is_shown(self):
        script = self.folder / "script.py"
        script.write_text("import logging, sys\ntry:\n    {}[1]\nexcept KeyError:\n    logging.exception('noted')\n"
                          "print('goes on', file=sys.stderr)\n")
        status, _, error, _ = self.run_job(2, script)
        self.assertEqual(status, 0, error)
        self.assertEqual((error.count("KeyError: 1"), error.count("goes on")), (2, 2), error)


class Ends(unittest.TestCase):
    """A guard between the end of its worker and its own end."""

    def guard(self):
        """Returns (a guard, heturun's end of its socket)."""
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            self.addCleanup(end.close)
        with mock.patch.object(guard, "connect", lambda _: ours):
            return guard.Guard("unix:none", [], ["true"]), theirs

    def test_until_heturun_has_decided(self):
        one, heturun = self.guard()
        heturun.sendall(frames.pack(frames.HEARTBEAT) + frames.pack(frames.SIGNAL, b"15"))
        with mock.patch.object(guard, "LINGER_S", 1000):
            one.linger()
            self.assertTrue(one.ending)
            one.linger()  # the guard knows that the job ends

    def test_past_other_signals_as_long_as_it_may(self):
        one, heturun = self.guard()
        heturun.sendall(frames.pack(frames.SIGNAL, b"10"))
        began = time.monotonic()
        with mock.patch.object(guard, "LINGER_S", 0.2):
            one.linger()
        self.assertGreaterEqual(time.monotonic() - began, 0.2)
        self.assertFalse(one.ending or one.lost)

    def test_not_for_a_heturun_that_is_gone(self):
        one, heturun = self.guard()
        heturun.close()
        with mock.patch.object(guard, "LINGER_S", 1000):
            one.linger()
        self.assertTrue(one.lost)

    def test_folders_stay_while_heturun_greets(self):
        for greeting, stays in ((frames.pack(frames.NONCE, b"n"), True), (b"", False)):
            with self.subTest(greeting=greeting), tempfile.TemporaryDirectory() as folder:
                one, _ = self.guard()
                one.directories = [os.path.join(folder, "job")]
                os.mkdir(one.directories[0])
                ours, theirs = socket.socketpair()
                theirs.sendall(greeting)
                theirs.close()
                with mock.patch.object(guard, "connect", lambda _, ours=ours: ours):
                    one.remove_directories()
                self.assertEqual(os.path.exists(one.directories[0]), stays)

    def test_mpiruns_end_is_told_once(self):
        one, heturun = self.guard()
        read, write = os.pipe()
        self.addCleanup(os.close, read)
        os.set_blocking(read, False)
        os.write(write, bytes([signal.SIGCHLD, signal.SIGTERM, signal.SIGTERM]))
        for _ in range(2):
            one.take_signals(read)
        os.close(write)
        self.assertEqual(list(frames.Frames().feed(heturun.recv(4096))), [(frames.TOLD, b"")])
        self.assertTrue(one.ending)


if __name__ == "__main__":
    unittest.main(argv=[word for word in sys.argv if word != "--whole"], verbosity=2)

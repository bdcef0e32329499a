"""HETU_FAULT: its grammar (hetu/drill.py), and faults that happen in a process (hetu/process/faults.py)."""
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from hetu import drill
from hetu.drill import Fault, FaultError

MANY_S = 100.0
WORDS = "import sys, time\nfrom hetu.process import faults\n"


class Grammar(unittest.TestCase):
    def test_reads_faults(self):
        text = ("worker=2,step=5,kind=kill; worker = 0 , at=save, kind=enospc,round=3;"
                "worker=1,kind=delay,at=evaluate,seconds=0.25;")
        found = drill.parse(text)
        self.assertEqual(found, [Fault(2, "kill", 5), Fault(0, "enospc", None, "save", 3),
                                 Fault(1, "delay", None, "evaluate", 0, 0.25)])
        self.assertEqual(drill.parse(drill.text_of(found)), found)
        self.assertEqual(drill.parse("worker=0,kind=enospc"), [Fault(0, "enospc", None, "save")])
        self.assertEqual(drill.parse(""), [])

    def test_faults_of_a_round(self):
        found = drill.parse("worker=2,step=5,kind=kill;worker=0,step=1,kind=stop,round=3")
        self.assertEqual(drill.of_round(found, 1), [Fault(2, "kill", 5)])
        self.assertEqual(drill.of_round(found, 3), [Fault(2, "kill", 5), Fault(0, "stop", 1)])
        self.assertEqual(drill.of_round(found, 3, keep=True), found)

    def test_takes_the_variable_away(self):
        """Rounds have the faults of their own number only, whatever encloses the job."""
        environ = {"HETU_FAULT": "worker=2,step=5,kind=kill", "FAULTS_OF_ROUND": "worker=0,step=5,kind=kill", "A": "1"}
        self.assertEqual(drill.take(environ), [Fault(2, "kill", 5)])
        self.assertEqual(environ, {"A": "1"})
        self.assertEqual(drill.take(environ), [])

    def test_wrong_values_are_one_line(self):
        for text, says in (
                ("x", "each of worker, step, at, kind, round, seconds at most once, as NAME=VALUE, not 'x'"),
                ("worker=1,worker=2,step=5,kind=kill", "at most once, as NAME=VALUE, not 'worker=2'"),
                ("step=5,kind=kill", "expected worker=,"), ("worker=1,step=5", "expected kind=,"),
                ("worker=1,step=5,kind=drop", r"kind=kill\|stop\|hang\|delay\|enospc, not kind=drop"),
                ("worker=-1,step=5,kind=kill", "worker=N with a whole number from 0, not worker=-1"),
                ("worker=1,step=x,kind=kill", "step=N with a whole number from 0, not step=x"),
                ("worker=1,kind=kill", r"one moment: step=N or at=start\|load\|save\|evaluate"),
                ("worker=1,step=1,at=save,kind=kill", "one moment"), ("worker=1,at=end,kind=kill", "not at=end"),
                ("worker=1,step=1,kind=kill,round=0", "round=N with a whole number from 1, not round=0"),
                ("worker=1,step=1,kind=delay", "seconds=S for a delay"),
                ("worker=1,step=1,kind=delay,seconds=0", "seconds=S above 0 and at most 3600, not seconds=0"),
                ("worker=1,step=1,kind=kill,seconds=1e9", "not seconds=1e9"),
                ("worker=1,step=1,kind=hang,seconds=2", "no seconds= for kind=hang"),
                ("worker=1,step=1,kind=enospc", "at=save for kind=enospc")):
            with self.subTest(text=text), self.assertRaisesRegex(FaultError, says) as caught:
                drill.parse("worker=0,step=1,kind=kill;" + text)
            self.assertRegex(str(caught.exception), r"^HETU_FAULT: got '.*'; expected .*, such as "
                                                    "'worker=2,step=5,kind=kill'; correct or unset HETU_FAULT$")


class Happening(unittest.TestCase):
    def start(self, faults, words, worker=1):
        environment = {**os.environ, "FAULTS_OF_ROUND": faults, "OMPI_COMM_WORLD_RANK": str(worker),
                       "OMPI_COMM_WORLD_SIZE": "2"}
        process = subprocess.Popen([sys.executable, "-c", WORDS + words], env=environment, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (process.kill(), process.communicate()))
        return process

    def done(self, faults, words, worker=1):
        process = self.start(faults, words, worker)
        out, error = process.communicate(timeout=MANY_S)
        return process.returncode, out, error

    STEPS = "for step in range(5): faults.at_step(step); print(step, flush=True)"

    def test_a_kill_at_a_step_of_its_worker(self):
        status, out, error = self.done("worker=1,step=3,kind=kill;worker=0,step=1,kind=kill", self.STEPS)
        self.assertEqual((status, out.split()), (-signal.SIGKILL, ["0", "1", "2"]))
        self.assertEqual(error, "hetu: a fault on purpose (HETU_FAULT): worker=1,step=3,kind=kill\n")
        status, out, error = self.done("worker=1,step=3,kind=kill", self.STEPS, worker=0)
        self.assertEqual((status, out.split(), error), (0, ["0", "1", "2", "3", "4"], ""))

    def test_a_kill_a_moment_later(self):
        status, out, _ = self.done("worker=1,step=0,kind=kill,seconds=0.2", "faults.at_step(0); print(1, flush=True)\n"
                                                                            "time.sleep(60)")
        self.assertEqual((status, out), (-signal.SIGKILL, "1\n"))

    def test_places(self):
        for place, words in (("start", "faults.at('start')"), ("load", "faults.during('load').__enter__()"),
                             ("evaluate", "faults.during('evaluate').__enter__()"), ("save", "faults.saving().__enter__()")):
            others = ";".join(f"worker=1,at={other},kind=kill" for other in drill.PLACES if other != place)
            self.assertEqual(self.done(others, words)[0], 0, place)
            self.assertEqual(self.done(f"worker=1,at={place},kind=kill", words)[0], -signal.SIGKILL, place)

    def test_a_stop_and_a_hang_end_nothing(self):
        process = self.start("worker=1,step=2,kind=stop", self.STEPS)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        process.send_signal(signal.SIGCONT)
        self.assertEqual(process.wait(MANY_S), 0)
        process = self.start("worker=1,step=2,kind=hang", self.STEPS)
        for _ in range(2):
            process.stdout.readline()
        self.assertIn("kind=hang", process.stderr.readline())
        time.sleep(1)
        self.assertIsNone(process.poll())

    def test_a_delay(self):
        began = time.monotonic()
        status, out, _ = self.done("worker=1,step=2,kind=delay,seconds=1.5", self.STEPS)
        self.assertEqual((status, len(out.split())), (0, 5))
        self.assertGreater(time.monotonic() - began, 1.5)

    def test_a_full_disk_during_one_save(self):
        with tempfile.TemporaryDirectory() as folder:
            words = (f"def write(name):\n    with open({folder!r} + '/' + name, 'w') as file: file.write(name * 9)\n"
                     "def save(name):\n    with faults.saving(): write(name)\n"
                     "write('before')\n"
                     "try: save('first')\nexcept OSError as error: print(error.strerror)\n"
                     "save('second')\nwrite('after')\n")
            status, out, _ = self.done("worker=1,kind=enospc", words)
            self.assertEqual((status, out), (0, "File too large\n"))
            self.assertEqual({name: os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder)},
                             {"before": 54, "first": 0, "second": 54, "after": 45})


if __name__ == "__main__":
    unittest.main()

"""SIGUSR1 and Ctrl-C to heturun at any moment: signals are held until they can be obeyed, and a job that can save isn't
killed."""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from hetu.launch import elastic, frames, guard, processes
from launch_test import END_S, HETURUN, MANY, LaunchCase
from processes import StopsBefore, parent_of, process_of, runs_script, wait_until

# A worker that handles SIGUSR1 only after a delay. Before that, it reports training as WORD describes it.
SLOW = ("import os, signal, sys, time\n"
        "from hetu import progress\n"
        "time.sleep(float(os.environ['BEFORE_S']))\n"
        "if os.environ.get('WORD'): progress.tell({'pid': os.getpid(), 'training': os.environ['WORD']})\n"
        "print('up', os.getpid(), os.environ['HETU_JOB'], flush=True)\n"
        "signal.signal(signal.SIGUSR1, lambda *_: (print('saved'), sys.exit(0)))\n"
        "if os.environ.get('DEAF'): signal.signal(signal.SIGUSR1, lambda *_: print('heard', flush=True))\n"
        "if os.environ.get('DEAF'): signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "while True: time.sleep(1)\n")


def holds(pid, number=signal.SIGUSR1):
    """Returns true if a signal wouldn't end a process, because it is blocked or has a handler."""
    return pid is not None and any(processes.ways_of(pid, number))


class SignalCase(LaunchCase):
    def setUp(self):
        super().setUp()
        self.script = pathlib.Path(self.tmp) / "slow.py"
        self.script.write_text(SLOW)
        self.env["BEFORE_S"] = "0.4"

    def tearDown(self):
        self.script.unlink()
        super().tearDown()

    def launch(self, *words, flags=("-w", "2")):
        """Starts a job, and returns from the first moment at which heturun can hold a signal."""
        process = subprocess.Popen([*HETURUN, *flags, *(words or (sys.executable, str(self.script)))], env=self.env,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL,
                                   start_new_session=True)
        self.assertTrue(wait_until(lambda: holds(process.pid), MANY))
        return process

    def check_saved(self, process, workers=2):
        out, error = process.communicate(timeout=MANY)
        self.assertEqual(process.returncode, 0, out + error)
        self.assertEqual([line.partition(" ")[2] for line in out.splitlines()].count("saved"), workers, out + error)
        return error


class Held(SignalCase):
    def test_usr1_at_any_moment(self):
        moments = (0.0, 0.1, 0.3, 0.6, 1.0)
        jobs = [self.launch() for _ in moments]
        since = time.monotonic()
        for process, moment in zip(jobs, moments, strict=True):
            time.sleep(max(0.0, since + moment - time.monotonic()))
            process.send_signal(signal.SIGUSR1)
        for process, moment in zip(jobs, moments, strict=True):
            with self.subTest(moment=moment):
                self.assertIn("heturun: SIGUSR1 sent to 2 workers: checkpoint and exit\n", self.check_saved(process))

    def test_from_the_first_line_on(self):
        """SIGUSR1 is held before heturun has imported any module of Hetu."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        stop = StopsBefore(pathlib.Path(folder.name), "hetu", self.env)
        process = subprocess.Popen([*HETURUN, "-w", "1", "true"], env=stop.environment, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        self.assertTrue(wait_until(lambda: stop.is_there() or process.poll() is not None))
        self.assertTrue(holds(process.pid), process.poll())
        stop.go()
        self.assertEqual(process.wait(MANY), 0)

    def test_usr1_to_a_guard_at_its_start(self):
        process, guards = self.launch(), set()
        while not guards:
            guards = {pid for pid in processes.descendants(process.pid) if holds(pid) and (
                runs_script(pid, "guard.py") or (runs_script(pid, "run_workers.py") and parent_of(pid) != process.pid))}
        for pid in guards:
            os.kill(pid, signal.SIGUSR1)
        wait_until(lambda: process_of(self.mark, "slow.py", 0) and process_of(self.mark, "slow.py", 1))
        process.send_signal(signal.SIGUSR1)
        self.check_saved(process)

    def test_a_process_below_takes_it(self):
        """Each worker's command is a shell that SIGUSR1 would kill. The process below the shell gets the signal."""
        process = self.launch("sh", "-c", f"{sys.executable} {self.script}; exit $?")
        process.send_signal(signal.SIGUSR1)
        self.check_saved(process)

    def test_a_process_that_asks_for_what_is_pending(self):
        wait = ("import signal, time; signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})\n"
                "while not signal.sigpending(): time.sleep(0.05)\n"
                "print('saved')")
        process = self.launch(sys.executable, "-c", wait)
        process.send_signal(signal.SIGUSR1)
        self.check_saved(process)

    def test_nobody_takes_it(self):
        """Without a process that handles the signal, the guard holds it. After HELD_S, it reports this once in the worker's
        output."""
        child = subprocess.Popen(["sleep", "100"], start_new_session=True)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        it, sent = guard.Guard.__new__(guard.Guard), []
        it.child, it.target, it.statuses, it.blocking = child, child.pid, {}, set()
        it.send = lambda kind, payload: sent.append((kind, payload))
        it.held = {}
        it.take_signal(signal.SIGUSR1)
        it.hand_on()
        self.assertEqual(sent, [])
        it.held[signal.SIGUSR1] -= guard.HELD_S
        it.hand_on()
        it.hand_on()
        says = b"heturun: SIGUSR1 is held: no process of this worker has a handler for it yet\n"
        self.assertEqual(sent, [(frames.ERR, says)])
        self.assertIsNone(child.poll())


class ControlC(SignalCase):
    def up(self, word, *, flags=("-w", "2"), deaf=False):
        """Starts a job, and returns after its workers have reported their training and can handle SIGUSR1."""
        self.env.update(WORD=word, BEFORE_S="0")
        if deaf:
            self.env["DEAF"] = "1"
        process = self.launch(flags=flags)
        workers = int(flags[1])
        for _ in range(workers):
            self.assertIn("] up ", process.stdout.readline())
        self.assertTrue(wait_until(lambda: all(holds(process_of(self.mark, "slow.py", i)) for i in range(workers))))
        return process

    def test_the_first_saves(self):
        shrink = ("-w", "3", "--on-failure", "shrink", "--pipelines", "3")
        for flags in (("-w", "2"), shrink):
            with self.subTest(flags=flags):
                process = self.up("saves", flags=flags)
                os.killpg(process.pid, signal.SIGINT)
                self.assertIn(f"heturun: SIGINT: SIGUSR1 sent to {flags[1]} workers: checkpoint and exit; a second SIGINT "
                              "ends them at once\n", self.check_saved(process, int(flags[1])))

    def test_the_second_ends_at_once(self):
        process = self.up("saves", deaf=True)
        os.killpg(process.pid, signal.SIGINT)
        for _ in range(2):
            self.assertIn("] heard\n", process.stdout.readline())
        since = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        status, error = self.finish(process, since)
        self.assertLess(time.monotonic() - since, guard.TERM_GRACE_S)
        self.assertEqual(status, 130, error)
        self.assertIn("heturun: SIGINT: ending 2 workers\n", error)

    def test_nothing_to_save(self):
        for word, says in (("unsaved", "; nothing is saved: no checkpoint folder was given"), ("over", ""), ("", "")):
            with self.subTest(word=word):
                process = self.up(word)
                since = time.monotonic()
                process.send_signal(signal.SIGINT)
                status, error = self.finish(process, since)
                self.assertEqual(status, 130, error)
                self.assertIn(f"heturun: SIGINT: ending 2 workers{says}\n", error)

    def test_usr1_with_nothing_to_save(self):
        process = self.up("unsaved")
        process.send_signal(signal.SIGUSR1)
        self.assertIn("heturun: SIGUSR1 sent to 2 workers: exit; nothing is saved: no checkpoint folder was given\n",
                      self.check_saved(process))

    def test_before_the_workers_have_said_anything(self):
        """The command line names a checkpoint folder, so Ctrl-C is held like SIGUSR1."""
        self.env["WORD"] = "saves"
        process = self.launch(sys.executable, str(self.script), "--checkpoint", "somewhere")
        started = wait_until(lambda: process_of(self.mark, "slow.py"), MANY)
        self.assertTrue(started)
        process.send_signal(signal.SIGINT)
        self.assertIn("SIGINT: SIGUSR1 sent to 2 workers", self.check_saved(process))

    def test_nohup_survives_the_terminal(self):
        """A job that is started with SIGHUP ignored goes on; it still ends by SIGTERM."""
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            process = self.up("saves")
        finally:
            signal.signal(signal.SIGHUP, before)
        process.send_signal(signal.SIGHUP)
        time.sleep(1.0)
        self.assertIsNone(process.poll())
        since = time.monotonic()
        process.send_signal(signal.SIGTERM)
        status, error = self.finish(process, since)
        self.assertEqual(status, 143, error)
        self.assertNotIn("SIGHUP", error)

    def test_a_round_is_born_with_usr1_held(self):
        """Otherwise a second change of the machines would kill a round that is just starting."""
        text = "import signal; print(signal.SIGUSR1 in signal.pthread_sigmask(signal.SIG_BLOCK, []))"
        me = os.getpid()
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True,
                              preexec_fn=lambda: elastic.start_round(me))
        self.assertEqual(done.stdout, "True\n")

    def test_before_any_worker_is_started(self):
        process = self.launch()
        since = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=MANY)
        self.assertEqual(process.returncode, 130, error)
        self.assertLess(time.monotonic() - since, END_S)
        self.assertRegex(error, r"heturun: SIGINT: end(ed before any worker was started|ing 2 workers)\n\Z")


class Alone(unittest.TestCase):
    """hetu.process.stop in a process without heturun, during a step that lets no Python code run."""

    TRAINS = ("import ctypes, sys\n"
              "from hetu.process import stop\n"
              "with stop.training(sys.argv[1] or None):\n"
              "    print('in a step', flush=True)\n"
              "    libc = ctypes.CDLL(None)\n"
              "    for _ in range(int(sys.argv[2])): libc.usleep(200000)\n"
              "    print('after it', stop.asked(), flush=True)\n")

    def train(self, folder, pauses):
        process = subprocess.Popen([sys.executable, "-c", self.TRAINS, folder, str(pauses)], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, bufsize=0, env=dict(os.environ, PYTHONPATH=":".join(sys.path)))
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), b"in a step\n")
        return process

    def test_the_first_is_answered_at_once_and_obeyed_after_the_step(self):
        for folder, what, ends in (("ckpt", "the training saves in ckpt", (0, b"after it True\n")),
                                   ("", "no checkpoint folder was given, and nothing is saved", (-signal.SIGINT, b""))):
            with self.subTest(folder=folder):
                process = self.train(folder, 5)
                process.send_signal(signal.SIGINT)
                says = f"SIGINT: ending after this step; {what}; a second SIGINT ends at once\n"
                self.assertEqual(process.stderr.readline().decode(), says)
                out, error = process.communicate(timeout=MANY)
                self.assertEqual((process.returncode, out), ends, error)
                self.assertEqual(b"KeyboardInterrupt" in error, not folder)

    def test_the_second_ends_at_once(self):
        for folder in ("ckpt", ""):
            with self.subTest(folder=folder):
                process = self.train(folder, 1000)
                process.send_signal(signal.SIGINT)
                self.assertIn(b"a second SIGINT ends at once", process.stderr.readline())
                since = time.monotonic()
                process.send_signal(signal.SIGINT)
                self.assertEqual(process.wait(MANY), -signal.SIGINT)
                self.assertLess(time.monotonic() - since, END_S)

    def test_what_a_script_does_with_signals_itself_stands(self):
        script = ("import os, signal\n"
                  "from hetu.process import stop\n"
                  "got = []\n"
                  "for number in (signal.SIGUSR1, signal.SIGINT): signal.signal(number, lambda n, _: got.append(n))\n"
                  "with stop.training('ckpt'):\n"
                  "    for number in (signal.SIGUSR1, signal.SIGINT, signal.SIGINT): os.kill(os.getpid(), number)\n"
                  "assert got == [signal.SIGUSR1, signal.SIGINT, signal.SIGINT] and not stop.asked(), got\n"
                  "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
                  "with stop.training('ckpt'): pass\n"
                  "try: os.kill(os.getpid(), signal.SIGINT)\n"
                  "except KeyboardInterrupt: print('as before')\n")
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=MANY,
                              env=dict(os.environ, PYTHONPATH=":".join(sys.path)))
        self.assertEqual((done.returncode, done.stdout), (0, "as before\n"), done.stderr)


if __name__ == "__main__":
    unittest.main()

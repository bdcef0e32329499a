"""heturun from outside: exit statuses, all kinds of ends, output, quoting, and no leftovers."""
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

from hetu import _hetu
from processes import parent_of, processes_with, wait_until, without_block

ROOT = pathlib.Path(__file__).resolve().parents[3]
HETURUN = [sys.executable, str(ROOT / "python" / "heturun")]
END_S = 10.0  # seconds until everything must have ended
MANY = 60.0  # seconds that a start may take on a busy machine
WITHOUT_MPI = os.environ.get("HETU_TRANSPORT") == "sockets"
STARTER = "run_workers" if WITHOUT_MPI else "mpirun"


class LaunchCase(unittest.TestCase):
    """A test with a mark in the environment and a separate TMPDIR. Both must be clean at the end."""

    def setUp(self):
        self.mark = "MARK=" + uuid.uuid4().hex
        self.tmp = tempfile.mkdtemp(prefix="t")
        self.addCleanup(shutil.rmtree, self.tmp, True)
        name, value = self.mark.split("=")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("OMPI_MCA_rmaps")}
        self.env.update({name: value, "TMPDIR": self.tmp, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))})
        self.shm = set(os.listdir("/dev/shm"))

    def tearDown(self):
        gone = wait_until(lambda: not processes_with(self.mark), END_S)
        left = processes_with(self.mark)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        self.assertTrue(gone, f"processes left: {left}")
        self.assertTrue(wait_until(lambda: not self.ours_in_shm(), 2), self.ours_in_shm())
        self.assertTrue(wait_until(lambda: not os.listdir(self.tmp), 2), os.listdir(self.tmp))

    def ours_in_shm(self):
        return [n for n in set(os.listdir("/dev/shm")) - self.shm if n.startswith(f"hetu-{self.job}-")]

    job = "no job"

    def run_it(self, *args, before=(), **more):
        return subprocess.run([*before, *HETURUN, *args], env=self.env, capture_output=True, text=True, timeout=MANY,
                              stdin=subprocess.DEVNULL, **more)

    def start(self, *args):
        """Starts a job whose workers each print `up PID`. Returns (process, {worker: pid})."""
        process = subprocess.Popen([*HETURUN, *args], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, stdin=subprocess.DEVNULL, start_new_session=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        workers, pids = int(args[1]), {}
        while len(pids) < workers:
            line = process.stdout.readline()
            self.assertTrue(line, "ended before all workers were up: " + (process.stderr.read() if not line else ""))
            found = re.match(r"\[(\d+)\] up (\d+) (\w+)", line)
            if found:
                pids[int(found[1])] = int(found[2])
                self.job = found[3]
        return process, pids

    def finish(self, process, since):
        """Waits for the end, which must come in time. Returns (exit status, standard error after the block)."""
        _, error = process.communicate(timeout=MANY)
        error = without_block(error)
        self.assertLess(time.monotonic() - since, END_S, error)
        return process.returncode, error


UP = "echo up $$ $HETU_JOB; "
SLEEPER = ["sh", "-c", UP + "sleep 1000; sleep 1000"]
STUBBORN = ["sh", "-c", "trap '' TERM; " + UP + "sleep 1000; sleep 1000"]


class ExitStatus(LaunchCase):
    def test_all_succeed(self):
        done = self.run_it("-w", "3", "true")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_cluster_block(self):
        done = self.run_it("-w", "2", "-s", "1", "true")
        self.assertIn("Cluster: {\n  Chief: localhost,\n  Servers(1): {'localhost': 1},\n"
                      "  Workers(2): {'localhost': 2},\n}\n", done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_status_is_the_failing_workers_and_ends_the_others(self):
        start = time.monotonic()
        done = self.run_it("-w", "3", "sh", "-c", "test $OMPI_COMM_WORLD_RANK = 1 && exit 3; sleep 1000")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertLess(time.monotonic() - start, END_S)
        self.assertRegex(done.stderr, r"heturun: worker 1 \(\S+, pid \d+\) exited with status 3; "
                                      r"ending the other 2 workers")

    def test_a_failure_after_others_succeeded(self):
        done = self.run_it("-w", "2", "sh", "-c", "test $OMPI_COMM_WORLD_RANK = 0 || { sleep 0.5; exit 9; }")
        self.assertEqual(done.returncode, 9, done.stderr)

    def test_the_cause_is_named_not_its_consequence(self):
        # 5 is the status of a worker that lost a peer. This worker reports first here.
        with tempfile.TemporaryDirectory() as folder:  # worker 0 fails once worker 1 is there, however slowly it starts
            done = self.run_it("-w", "2", "sh", "-c", "if test $OMPI_COMM_WORLD_RANK = 0; then "
                               f"until test -e {folder}/there; do sleep 0.01; done; exit 5; fi; "
                               f"touch {folder}/there; sleep 0.2; kill -9 $$")
        self.assertEqual(done.returncode, 137, done.stderr)
        self.assertIn("worker 1", done.stderr)

    def test_a_lone_consequence_is_reported(self):
        self.assertEqual(self.run_it("-w", "2", "sh", "-c", "test $OMPI_COMM_WORLD_RANK = 0 && exit 5; sleep 100")
                         .returncode, 5)

    def test_own_signal(self):
        done = self.run_it("-w", "2", "sh", "-c", "kill -SEGV $$")
        self.assertEqual(done.returncode, 128 + signal.SIGSEGV, done.stderr)
        self.assertIn("was killed by SIGSEGV", done.stderr)

    def test_command_not_found(self):
        done = self.run_it("-w", "2", "no-such-command-here", "x")
        self.assertEqual(done.returncode, 127)
        self.assertIn("heturun: cannot start 'no-such-command-here'", done.stderr)

    def test_background_processes_of_a_command_end_with_it(self):
        start = time.monotonic()
        done = self.run_it("-w", "2", "sh", "-c", "sleep 1000 & setsid sleep 1000 & echo done")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("done"), 2)
        self.assertLess(time.monotonic() - start, END_S)


class Ends(LaunchCase):
    def test_a_killed_worker_ends_the_job(self):
        process, pids = self.start("-w", "3", *SLEEPER)
        start = time.monotonic()
        os.kill(pids[2], signal.SIGKILL)
        status, error = self.finish(process, start)
        self.assertEqual(status, 137, error)
        self.assertRegex(error, rf"heturun: worker 2 \(\S+, pid {pids[2]}\) was killed by SIGKILL; "
                                r"ending the other 2 workers")
        self.assertNotIn("mpirun", error)

    @unittest.skipUnless(shutil.which("hetu"), "the hetu tool was not built")
    @unittest.skipIf(WITHOUT_MPI, "Open MPI starts no worker here (HETU_TRANSPORT=sockets)")
    def test_where_open_mpi_can_not_start_it_says_why(self):
        done = self.run_it("-w", "2", "env", "OMPI_MCA_pml=nosuch", "hetu", "rehearse", "1f1b", "--stages", "2",
                           "--micro-batches", "4")
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertRegex(done.stderr,
                         r"heturun: worker \d \(\S+, pid \d+\) exited with status \d+ while Open MPI started in it")
        self.assertRegex(done.stderr, r"\[(mpirun|w\d)\] \S")  # by mpirun or by the worker, depending on Open MPI

    def test_a_killed_guard_ends_the_job(self):
        process, pids = self.start("-w", "3", *SLEEPER)
        start = time.monotonic()
        os.kill(parent_of(pids[0]), signal.SIGKILL)
        status, error = self.finish(process, start)
        self.assertEqual(status, 137, error)
        self.assertIn("worker 0", error)

    def test_a_killed_starter_ends_the_job(self):
        process, pids = self.start("-w", "2", *SLEEPER)
        start = time.monotonic()
        os.kill(parent_of(parent_of(pids[0])), signal.SIGKILL)
        status, error = self.finish(process, start)
        self.assertEqual(status, 128 + signal.SIGKILL, error)
        self.assertRegex(error, rf"\Aheturun: {STARTER} was killed by SIGKILL before workers 0, 1 ended(; ending .*)?\n\Z")

    def test_a_killed_heturun_leaves_nothing(self):
        for command in (SLEEPER, STUBBORN):  # mpirun kills the guard of a worker that doesn't end at once
            with self.subTest(command=command):
                process, _ = self.start("-w", "3", *command)
                start = time.monotonic()
                process.kill()
                self.assertEqual(self.finish(process, start)[0], -signal.SIGKILL)
                self.assertTrue(wait_until(lambda: not processes_with(self.mark), END_S))
                self.assertTrue(wait_until(lambda: not os.listdir(self.tmp), 2), os.listdir(self.tmp))
                self.assertEqual(self.ours_in_shm(), [])

    def test_signals_end_the_job(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(signal=number):
                process, _ = self.start("-w", "2", *SLEEPER)
                start = time.monotonic()
                process.send_signal(number)
                status, error = self.finish(process, start)
                self.assertEqual(status, 128 + number, error)
                self.assertIn(f"heturun: {number.name}: ending 2 workers", error)

    def test_control_c_reaches_the_whole_foreground_group(self):
        process, _ = self.start("-w", "2", *SLEEPER)
        start = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        self.assertEqual(self.finish(process, start)[0], 130)

    def test_workers_that_ignore_signals_are_killed(self):
        process, _ = self.start("-w", "2", "sh", "-c", "trap '' TERM INT HUP; " + UP + "sleep 1000; sleep 1000")
        start = time.monotonic()
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.finish(process, start)[0], 143)

    def test_asked_twice_ends_at_once(self):
        process, _ = self.start("-w", "2", "sh", "-c", "trap '' TERM INT; " + UP + "while :; do sleep 1; done")
        start = time.monotonic()
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        self.assertEqual(self.finish(process, start)[0], 130)
        self.assertLess(time.monotonic() - start, 3.0)

    def test_usr1_is_handed_on_and_the_job_exits_0(self):
        script = ("import os, signal, sys, time\n"
                  "signal.signal(signal.SIGUSR1, lambda *_: (print('saved'), sys.exit(0)))\n"
                  "print('up', os.getpid(), os.environ['HETU_JOB'], flush=True)\n"
                  "while True: time.sleep(1)\n")
        process, _ = self.start("-w", "2", sys.executable, "-c", script)
        process.send_signal(signal.SIGUSR1)
        out, error = process.communicate(timeout=MANY)
        self.assertEqual(process.returncode, 0, error)
        self.assertEqual(sorted(out.split("\n")), ["", "[0] saved", "[1] saved"])

    def test_a_closed_standard_output_ends_the_job(self):
        process, _ = self.start("-w", "2", "sh", "-c", UP + "while :; do echo more; sleep 0.1; done")
        start = time.monotonic()
        process.stdout.close()
        self.assertEqual(process.wait(timeout=MANY), 128 + signal.SIGPIPE)
        self.assertLess(time.monotonic() - start, END_S)


class Output(LaunchCase):
    def test_quoting_is_preserved(self):
        words = ["a b", "c'd", "$X", "", '"', "\\", "*", "--flag=1 2", "-w", "é\n2nd", "`id`", "a;b|c&d"]
        done = self.run_it("-w", "2", sys.executable, "-c", "import sys; print(ascii(sys.argv[1:]))", *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        for worker in range(2):
            self.assertIn(f"[{worker}] {ascii(words)}\n", done.stdout)

    def test_lines_stay_whole_and_streams_apart(self):
        # 4 workers write lines longer than the buffers of pipes and mpirun, in pieces, at once on both streams.
        script = ("import os, sys\n"
                  "w = os.environ['OMPI_COMM_WORLD_RANK']\n"
                  "for i in range(300):\n"
                  "    for fd, name in ((1, b'out'), (2, b'err')):\n"
                  "        for piece in (name + b' %d ' % i, w.encode() * (i * 37 % 9000), b'.\\n'):\n"
                  "            os.write(fd, piece)\n")
        done = self.run_it("-w", "4", sys.executable, "-c", script)
        self.assertEqual(done.returncode, 0, done.stderr[-500:])
        for text, name in ((done.stdout, "out"), (done.stderr, "err")):
            seen = {w: [] for w in range(4)}
            for line in text.splitlines():
                found = re.fullmatch(rf"\[(\d)\] {name} (\d+) (\d*)\.", line)
                if found:
                    worker, i = int(found[1]), int(found[2])
                    self.assertEqual(found[3], str(worker) * (i * 37 % 9000))
                    seen[worker].append(i)
                else:
                    self.assertNotRegex(line, r"\[\d\]")
            self.assertEqual(seen, {w: list(range(300)) for w in range(4)}, name)

    def test_a_last_line_without_newline_is_not_lost(self):
        done = self.run_it("-w", "2", "printf", "no newline")
        self.assertIn("[0] no newline\n", done.stdout)
        self.assertIn("[1] no newline\n", done.stdout)

    def test_two_jobs_at_once_do_not_meet(self):
        jobs = [self.start("-w", "2", "sh", "-c", UP + "sleep 0.5; echo job $HETU_JOB; exit " + str(i)) for i in (0, 4)]
        names = []
        for (process, _), status in zip(jobs, (0, 4), strict=True):
            out, error = process.communicate(timeout=MANY)
            self.assertEqual(process.returncode, status, error)
            names.append(set(re.findall(r"job (\w+)", out)))
        self.assertEqual([len(n) for n in names], [1, 1])
        self.assertNotEqual(*names)

    def test_starts_where_the_hosts_name_means_nothing(self):
        apart = ["unshare", "-u", "sh", "-c", 'hostname no-such-name-anywhere && exec "$@"', "sh"]
        if subprocess.run([*apart, "true"], capture_output=True).returncode != 0:
            self.skipTest("this machine does not permit `unshare -u`")
        start = time.monotonic()
        done = self.run_it("-w", "2", "hostname", before=apart)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("[1] no-such-name-anywhere\n", done.stdout)
        self.assertLess(time.monotonic() - start, END_S)

    def test_threads_beyond_the_cores_sleep_while_they_wait(self):
        """With more threads than cores, waiting threads sleep. Otherwise they spin briefly first, unless the environment
        sets a policy."""
        cores = _hetu.machine_cores()
        for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
            self.env.pop(name, None)

        def waits(workers, *words):
            done = self.run_it("-w", workers, "sh", "-c", "echo $OMP_WAIT_POLICY. $GOMP_SPINCOUNT.", *words)
            return {re.sub(r"^\[\d+\] ", "", line) for line in done.stdout.splitlines()}

        self.assertEqual(waits("1", "x"), {". 1000."})
        for workers, words in (("2", ["--threads", str(cores)]), ("2", [f"--threads={cores}"]), (str(cores + 1), ["x"])):
            self.assertEqual(waits(workers, *words), {"passive. ."})
        self.env["OMP_WAIT_POLICY"] = "active"
        self.assertEqual(waits("1", "x"), {"active. ."})

    def test_numpys_threads_are_a_workers_share_of_the_cores(self):
        cores = _hetu.machine_cores()
        for workers, given, threads in (("1", {}, ""), (str(2 * cores), {}, "1"), ("2", {}, str(max(1, cores // 2))),
                                        ("2", {"OPENBLAS_NUM_THREADS": "7"}, "7"), ("2", {"OMP_NUM_THREADS": "3"}, "")):
            self.env.pop("OPENBLAS_NUM_THREADS", None)
            self.env.pop("OMP_NUM_THREADS", None)
            self.env.update(given)
            done = self.run_it("-w", workers, "sh", "-c", "echo threads=$OPENBLAS_NUM_THREADS.")
            self.assertIn(f"threads={threads}.", [line.removeprefix("[0] ") for line in done.stdout.splitlines()])

    REPORT = ("from hetu import progress\n"
              "import os, time\n"
              "if os.environ['OMPI_COMM_WORLD_RANK'] == '1':\n"
              "    with progress.Reporter(50) as report:\n"
              "        for step in range(1, 51):\n"
              "            report.update(step, loss=5.0 - step / 100, samples_per_s=812, tokens_per_s=104000)\n"
              "            time.sleep(0.01)\n")

    def test_progress_without_a_terminal_is_a_line(self):
        done = self.run_it("-w", "2", sys.executable, "-c", self.REPORT)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"step 50/50 \(100 %\): loss 4\.5000, 812 samples/s, 104k tokens/s, ETA 0:00\n")
        self.assertNotIn("\r", done.stderr)

    def test_progress_on_a_terminal_is_a_bar(self):
        master, slave = pty.openpty()
        process = subprocess.Popen([*HETURUN, "-w", "2", sys.executable, "-c", self.REPORT], env=self.env, stderr=slave,
                                   stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        os.close(slave)
        text = b""
        try:
            while data := os.read(master, 4096):
                text += data
        except OSError:
            pass
        os.close(master)
        process.communicate(timeout=MANY)
        self.assertEqual(process.returncode, 0, text)
        self.assertRegex(text.decode(), r"\r100 % \[#+\]  step 50/50  loss 4\.5000  812 samples/s .*ETA 0:00\r?\n$")
        self.assertGreater(text.count(b"\r"), 3)


if __name__ == "__main__":
    unittest.main(verbosity=2)

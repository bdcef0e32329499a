"""Run folders, and heturun ps, logs and stop, with jobs of small scripts."""
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

from hetu.launch import jobs, run_folder, slow
from processes import wait_until

HETURUN = [sys.executable, str(pathlib.Path(__file__).resolve().parents[3] / "python" / "heturun")]
MANY_S = 100.0
# Prints two lines, reports three steps, and ends on SIGUSR1 as a training does: with a line, after its step.
SCRIPT = """
import os, signal, sys, time
from hetu import progress
asked = []
signal.signal(signal.SIGUSR1, lambda *_: asked.append(1))
worker = int(os.environ["OMPI_COMM_WORLD_RANK"])
progress.tell({"pid": os.getpid(), "training": sys.argv[1]})
print("hello of", worker, flush=True)
print("a warning", file=sys.stderr, flush=True)
if worker == 0:
    for step in range(3):
        progress.tell({"step": step + 1, "total": 9, "loss": 0.5, "samples_per_s": 12.5, "tokens_per_s": None, "extra": {}})
        time.sleep(0.2)
while not asked:
    time.sleep(0.05)
print("saved by", worker, flush=True)
"""


class JobCase(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="jobs-")
        self.addCleanup(shutil.rmtree, self.folder, True)
        pathlib.Path(self.folder, "my train.py").write_text(SCRIPT)
        self.env = {name: value for name, value in os.environ.items() if name != "HETU_RUNS"}

    def heturun(self, *args, status=0, **more):
        """Runs heturun to its end. Returns (standard output, standard error)."""
        done = subprocess.run([*HETURUN, *args], env=self.env, capture_output=True, text=True, timeout=MANY_S,
                              cwd=self.folder, stdin=subprocess.DEVNULL, check=False, **more)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout, done.stderr

    def start(self, *flags, training="saves"):
        """Starts a job of two workers, and waits for its third step. Returns (process, path of its run folder)."""
        process = subprocess.Popen([*HETURUN, "-w", "2", *flags, "python3", "my train.py", training], env=self.env,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=self.folder)
        self.addCleanup(lambda: (process.kill(), process.wait(), process.stderr.close()))
        named = None
        for line in process.stderr:
            if named := re.fullmatch(r"heturun: job ([0-9a-f]{6}): logs in (\S+); heturun ps, logs, watch and stop\n", line):
                break
        self.assertTrue(named, "the job doesn't say where its run folder is")
        path = os.path.join(self.folder, named[2])
        state = os.path.join(path, "status.json")
        self.assertTrue(wait_until(lambda: (run_folder.read(state) or {}).get("step") == 3, MANY_S))
        self.name = named[1]
        return process, path

    def rows(self, *args):
        """Returns {job: row} of heturun ps."""
        return {line.split()[0]: line for line in self.heturun("ps", *args)[0].splitlines()[1:] if line}


class Commands(JobCase):
    def test_a_job_is_listed_read_and_stopped(self):
        process, path = self.start()
        self.assertRegex(path, r"/runs/\d{8}-\d{6}-my-train$")
        row = self.rows()[self.name]
        self.assertRegex(row, r"runs +3/9 +0\.5000 +12\.5 +\S+ +2 +\d\.\d GiB +\d{4}-\d\d-\d\d \d\d:\d\d +python3 my "
                              r"train\.py saves")
        workers = self.heturun("ps", self.name)[0].splitlines()[-2:]
        for number, line in enumerate(workers):
            self.assertRegex(line, rf"^{number} +\S+ +\d+ +runs ")
        out, _ = self.heturun("logs", self.name)
        for line in ("[0] hello of 0", "[1] hello of 1", "[0] ! a warning",
                     "heturun: step 1/9 (11 %): loss 0.5000, 12.5 samples/s"):
            self.assertRegex(out, rf"(?m)^\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{{3}} {re.escape(line)}$")
        times = [line[:23] for line in out.splitlines()]
        self.assertEqual(times, sorted(times))
        self.assertRegex(self.heturun("logs", path, "1", "-n", "1")[0], r"^\S+ \S+ (! a warning|hello of 1)\n$")
        out, _ = self.heturun("stop", self.name)
        self.assertEqual(out, f"job {self.name} saves and ends\njob {self.name} finished\n")
        self.assertEqual(process.wait(MANY_S), 0)
        self.assertNotIn(self.name, self.rows())
        self.assertRegex(self.rows("-a")[self.name], r"finished +3/9")
        self.assertRegex(self.rows("runs")[self.name], r"finished +3/9")
        self.assertIn("[1] saved by 1", self.heturun("logs", self.name[:4], "-f")[0])
        self.assertEqual(self.heturun("stop", self.name)[0], f"job {self.name} doesn't run any more: finished\n")
        job = json.loads(pathlib.Path(path, "job.json").read_text())
        self.assertEqual(job["command"], ["python3", "my train.py", "saves"])
        self.assertEqual(job["nodes"], [{"host": "localhost", "servers": 0, "workers": 2, "chief": True}])

    def test_logs_follow_a_job_to_its_end(self):
        _, path = self.start()
        follower = subprocess.Popen([*HETURUN, "logs", "-f", path], env=self.env, stdout=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (follower.kill(), follower.wait(), follower.stdout.close()))
        self.assertTrue(any("hello of" in line for line in iter(follower.stdout.readline, "")))
        self.heturun("stop", path)
        self.assertIn("[0] saved by 0", follower.communicate(timeout=MANY_S)[0])
        self.assertEqual(follower.returncode, 0)

    def test_a_job_that_cannot_save_is_stopped_on_demand_only(self):
        process, _ = self.start(training="unsaved")
        _, error = self.heturun("stop", self.name, status=2)
        self.assertEqual(error, f"heturun stop: job {self.name} can't save: it trains without a checkpoint folder; heturun "
                                f"stop --now {self.name} ends it without saving\n")
        self.assertIsNone(process.poll())
        self.assertIn("ended: status 143", self.heturun("stop", "--now", self.name)[0])
        self.assertEqual(process.wait(MANY_S), 143)

    def test_a_killed_job_is_told_from_a_living_one(self):
        process, path = self.start()
        link = os.path.join(run_folder.registry(), json.loads(pathlib.Path(path, "job.json").read_text())["job"])
        self.assertTrue(os.path.islink(link))
        process.kill()
        process.wait()
        self.assertRegex(self.rows("-a")[self.name], "killed +3/9")
        self.assertFalse(os.path.islink(link), "its link is removed by heturun ps")

    def test_wrong_words_are_one_line(self):
        cases = ((("logs", "zz"), "no job 'zz' on this host or in runs: give a name that heturun ps -a lists, or a run "
                                    "folder"),
                 (("stop", ""), "no job '' on this host or in runs"),
                 (("ps", self.folder + "/none"), "no job '.*/none' on this host or in runs"),
                 (("logs", self.folder), f"{self.folder} is no run folder: it has no job.json; heturun ps -a lists the run "
                                           "folders"))
        for words, says in cases:
            with self.subTest(words=words):
                out, error = self.heturun(*words, status=2)
                self.assertEqual(out, "")
                self.assertRegex(error, rf"\Aheturun {words[0]}: {says}")
                self.assertEqual(error.count("\n"), 1)
        self.assertEqual(self.heturun("ps", self.folder)[0], f"no job in {self.folder}\n")


class Folders(JobCase):
    def test_a_named_folder(self):
        process, path = self.start("--run-dir", "mine")
        self.assertEqual(path, os.path.join(self.folder, "mine"))
        _, error = self.heturun("-w", "1", "--run-dir", "mine", "true", status=2)
        self.assertRegex(error, rf"heturun: --run-dir \S+/mine: job {self.name} \(pid {process.pid}\) uses this folder; "
                                "choose another one\n$")
        self.heturun("stop", "mine")
        _, error = self.heturun("-w", "1", "--run-dir", "mine", "sh", "-c", "echo again")  # a later job goes on in it
        self.assertIn("logs in mine;", error)
        lines = self.heturun("logs", "mine", "0")[0]
        self.assertRegex(lines, r"hello of 0\n(.*\n)*\S+ \S+ again\n$")

    def test_no_folder_where_none_is_wanted(self):
        self.env["HETU_RUNS"] = "none"
        self.heturun("-w", "1", "true")
        del self.env["HETU_RUNS"]
        hetu = str(pathlib.Path(os.environ["HETU_BUILD_DIR"], "bin", "hetu"))
        self.heturun("-w", "1", hetu, "--version")
        self.assertEqual(os.listdir(self.folder), ["my train.py"])
        self.env["HETU_RUNS"] = "elsewhere"
        self.heturun("-w", "1", "true")
        self.assertRegex(",".join(os.listdir(os.path.join(self.folder, "elsewhere"))), r"^\d{8}-\d{6}-true$")

    def test_a_folder_that_cannot_be_made(self):
        pathlib.Path(self.folder, "file").touch()
        self.env["HETU_RUNS"] = "file"
        _, error = self.heturun("-w", "1", "true")
        self.assertRegex(error, r"heturun: the run folder file/\S+-true can't be made: Not a directory; the job keeps no "
                                r"logs \(--run-dir names a folder\)\n")
        _, error = self.heturun("-w", "1", "--run-dir", "file/mine", "true", status=2)
        self.assertRegex(error, r"heturun: --run-dir \S+/file/mine: Not a directory; give a folder that can be written\n$")

    def test_a_job_that_is_refused_leaves_no_folder(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            self.heturun("-w", "1", "--metrics-port", port, "true", status=2)
            self.assertEqual(os.listdir(os.path.join(self.folder, "runs")), [])
            os.mkdir(os.path.join(self.folder, "mine"))
            self.heturun("-w", "1", "--run-dir", "mine", "--metrics-port", port, "true", status=2)
        self.assertTrue(os.path.isdir(os.path.join(self.folder, "mine")), "a folder of the user's own stays")

    def test_a_full_disk_does_not_end_the_job(self):
        place = os.path.join(self.folder, "small")
        os.mkdir(place)
        mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", place]
        mounted = os.geteuid() == 0 and subprocess.run(mount, check=False, capture_output=True).returncode == 0
        if not mounted:
            self.skipTest("a file system of 64 KiB can't be mounted here: this needs root")
        self.addCleanup(subprocess.run, ["umount", "-l", place], check=True)
        lines = "import sys\nfor i in range(4000):\n    print('line', i, 'x' * 60)\n"
        out, error = self.heturun("-w", "1", "--run-dir", "small/run", "python3", "-c", lines)
        self.assertEqual(out.count("\n"), 4000)
        says = (r"heturun: the run folder \S+/small/run can't be written: No space left on device; the job goes on, and its "
                r"logs end here\n")
        self.assertEqual(len(re.findall(says, error)), 1, error)

    def test_a_folder_of_another_user_lists_nothing(self):
        """The folder in /tmp with the links could be made by anybody."""
        class Other:
            st_mode, st_uid = os.lstat("/tmp").st_mode, os.getuid() + 1
        before, run_folder.os.lstat = run_folder.os.lstat, lambda path: Other
        try:
            self.assertIsNone(run_folder.registry())
        finally:
            run_folder.os.lstat = before


class Time(unittest.TestCase):
    def test_no_secret_is_written(self):
        names = {"HETU_JOB_SECRET": "word-1", "HETU_COORDINATOR": "word-2", "HETU_THREADS": "3"}
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(os.environ, names):
            run_folder.RunFolder(folder, lambda text: None).begin("0123456789ab", ["true"], [])
            text = pathlib.Path(folder, "job.json").read_text()
        self.assertNotIn("word-", text)
        self.assertEqual(json.loads(text)["environment"]["HETU_THREADS"], "3")

    def test_a_step_of_the_log_is_in_the_state(self):
        """A script waits for the first progress in heturun.log, and then asks heturun ps for the step."""
        class Watched(run_folder.RunFolder):
            steps = []

            def line(self, text):
                self.steps.append((text, run_folder.read(os.path.join(self.path, "status.json"))["step"]))

        now = 100.0
        with tempfile.TemporaryDirectory() as folder:
            one = Watched(folder, lambda text: None)
            one._clock = lambda: now
            one.status([], slow.Slow(0))
            for step, later in ((1, 0.1), (2, 0.1), (3, run_folder.PROGRESS_EVERY_S)):
                now += later
                one.progress({"step": step}, None, f"step {step}")
                one.status([], slow.Slow(0))
            self.assertEqual(one.steps, [("step 1", 1), ("step 3", 3)])

    def test_a_failure_of_heturun_is_an_end(self):
        said = []
        with tempfile.TemporaryDirectory() as folder:
            one = run_folder.RunFolder(folder, said.append)
            one.begin("0123456789ab", ["true"], [])
            self.assertEqual(jobs.Found(folder).state(), "starts")
            one.leave()
            self.assertEqual(jobs.Found(folder).job["job"], "0123456789ab")
            self.assertEqual(run_folder.read(os.path.join(folder, "status.json"))["status"], 1)
        self.assertEqual(len(said), 1)

    def test_the_start_of_a_process_tells_it_from_another(self):
        child = subprocess.Popen(["sleep", "60"])
        job = {"host": os.uname().nodename, "pid": child.pid, "pid_start": run_folder.start_of(child.pid)}
        self.assertTrue(run_folder.is_alive(job))
        self.assertFalse(run_folder.is_alive({**job, "pid_start": job["pid_start"] + 1}))
        child.send_signal(signal.SIGKILL)
        self.assertTrue(wait_until(lambda: not run_folder.is_alive(job), MANY_S), "a zombie isn't alive")
        child.wait()
        self.assertFalse(run_folder.is_alive({**job, "pid_start": 0}))


if __name__ == "__main__":
    unittest.main(verbosity=2)

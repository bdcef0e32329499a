"""heturun add and remove: the list of machines of a running elastic job, with jobs of small scripts."""
import json
import os
import pathlib
import pwd
import re
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock

from hetu.launch import elastic, jobs, machine_list, network, run_folder
from hetu.launch.found import JobError
from processes import wait_until

HETURUN = [sys.executable, str(pathlib.Path(__file__).resolve().parents[3] / "python" / "heturun")]
MANY_S = 100.0
# Trains nothing: each round ends when it is asked to save.
SCRIPT = """
import os, signal, time
from hetu import progress
asked = []
signal.signal(signal.SIGUSR1, lambda *_: asked.append(1))
progress.tell({"pid": os.getpid(), "training": "saves", "elastic": {"joined": True}})
while not asked:
    time.sleep(0.05)
"""


class ListCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="machines-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.list = self.folder / "machines"

    def job(self, **more):
        """Writes the run folder of a job that runs: this process."""
        path = self.folder / "run"
        path.mkdir(exist_ok=True)
        job = {"job": "0123456789ab", "host": socket.gethostname(), "pid": os.getpid(),
               "pid_start": run_folder.start_of(os.getpid()), "elastic": True, "machines": str(self.list), **more}
        (path / "job.json").write_text(json.dumps(job))
        return str(path)

    def change(self, *words):
        given = jobs.parser().parse_args(list(words))
        return getattr(machine_list, given.what)(given)

    def refused(self, says, *words):
        before = self.list.read_text() if self.list.exists() else None
        with self.assertRaisesRegex(JobError, says) as caught:
            self.change(*words)
        self.assertNotIn("\n", str(caught.exception))
        self.assertEqual(self.list.read_text() if self.list.exists() else None, before)


class Lists(ListCase):
    def test_adds_and_removes_workers(self):
        run = self.job()
        self.list.write_text("# of the lab\nlocalhost 2  # this one\nw1\nw1 3\n")
        self.list.chmod(0o640)
        inode = self.list.stat().st_ino
        self.assertEqual(self.change("add", "localhost", "2", "--job", run), 0)
        self.assertEqual(self.list.read_text(), "# of the lab\nlocalhost 4  # this one\nw1\nw1 3\n")
        self.assertNotEqual(self.list.stat().st_ino, inode, "a reader sees the old list or the new one")
        self.assertEqual(self.list.stat().st_mode & 0o777, 0o640)
        with unittest.mock.patch.object(machine_list.remote, "ask", return_value={"w1": (0, "", ""), "w2": (0, "", "")}):
            self.change("add", "w1", "--job", run)
            self.change("add", "w2", "4", "--job", run)
        self.assertEqual(self.list.read_text(), "# of the lab\nlocalhost 4  # this one\nw1 5\nw2 4\n")
        self.change("remove", "w1", "--job", run)
        self.change("remove", "localhost", "--job", run)
        self.change("remove", "w2", "--job", run)
        self.assertEqual(self.list.read_text(), "# of the lab\n")
        self.assertEqual(os.listdir(self.folder / "run"), ["job.json"], "no lock is left")
        self.assertEqual(sorted(os.listdir(self.folder)), ["machines", "run"])

    def test_changes_at_once_are_all_kept(self):
        run = self.job()
        self.list.write_text("localhost 1\n")
        threads = [threading.Thread(target=self.change, args=("add", "localhost", "1", "--job", run)) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(self.list.read_text(), "localhost 13\n")

    def test_refuses_hosts(self):
        run = self.job()
        self.list.write_text("localhost 2\n")
        for host in ("w 0;rm", "-oProxyCommand=x", "a/b", ""):
            self.refused("is no name or address of a host, such as w2", "add", "--job", run, "--", host)
        self.refused("the number of workers must be from 1 to 9999", "add", "localhost", "0", "--job", run)
        self.refused("more than 9999 can't be listed", "add", "localhost", "9998", "--job", run)
        self.refused(r"w9 is not in \S+, which lists localhost$", "remove", "w9", "--job", run)
        self.assertTrue(network.is_this_host("127.0.0.1"))
        self.refused("127.0.0.1 and localhost are the same machine: heturun add localhost 3", "add", "127.0.0.1", "3",
                     "--job", run)
        answer = {"w9": (255, "", "ssh: Could not resolve hostname w9: Name or service not known")}
        with unittest.mock.patch.object(machine_list.remote, "ask", return_value=answer):
            self.refused(r"w9: ssh does not reach it: ssh: Could not resolve .*; \S+ is unchanged$", "add", "w9", "--job",
                         run)
        self.list.write_text("localhost two\n")
        self.refused("line 1: expected HOST or HOST WORKERS.*; correct it first", "add", "localhost", "--job", run)
        with self.assertRaises(elastic.MachinesError):  # ssh would take it as an option
            self.list.write_text("-v 2\n")
            elastic.read_machines(self.list)

    def test_refuses_jobs(self):
        self.list.write_text("localhost 2\n")
        for more, says in (({"elastic": False}, "isn't elastic, so its machines stay as they are; start it with heturun --"),
                           ({"machines": None}, "has no list of machines, because it was started with -w"),
                           ({"pid_start": 1}, "doesn't run any more: killed$"),
                           ({"host": "elsewhere"}, "runs on elsewhere: type this there"),
                           ({"machines": str(self.folder / "none")}, "none of job 012345 can't be read: No such file")):
            run = self.job(**more)
            for words in (("add", "localhost", "1"), ("remove", "localhost")):
                self.refused(says, *words, "--job", run)
        self.refused("no job 'zz' on this host", "remove", "localhost", "--job", "zz")
        self.refused("is no run folder: it has no job.json", "remove", "localhost", "--job", str(self.folder))
        run = self.job()
        user = os.geteuid() + 1
        with unittest.mock.patch.object(machine_list.os, "geteuid", return_value=user):
            name = pwd.getpwuid(os.geteuid() - 1).pw_name
            self.refused(f"job 012345 belongs to user {name}, and only user {name} can change its machines", "add",
                         "localhost", "--job", run)

    def test_needs_a_choice_between_jobs(self):
        self.list.write_text("localhost 2\n")
        run = self.job()
        with unittest.mock.patch.object(machine_list, "living", return_value=[]):
            self.refused("no elastic job of yours runs on this host", "remove", "localhost")
        with unittest.mock.patch.object(machine_list, "living", return_value=[run, run]):
            self.refused("several elastic jobs run here: 012345, 012345; choose one with --job JOB", "remove", "localhost")
        with unittest.mock.patch.object(machine_list, "living", return_value=[run]):
            self.assertEqual(self.change("add", "localhost"), 0)
        self.assertEqual(self.list.read_text(), "localhost 3\n")


class Commands(ListCase):
    def heturun(self, *words, status=0):
        done = subprocess.run([*HETURUN, *words], capture_output=True, text=True, timeout=MANY_S, check=False)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_a_running_job_follows(self):
        (self.folder / "script.py").write_text(SCRIPT)
        self.list.write_text("localhost 1\n")
        run, said = self.folder / "the run", self.folder / "said"
        words = [*HETURUN, "--elastic", "--layout", "1x1x4", "--machines", str(self.list), "--run-dir", str(run),
                 sys.executable, str(self.folder / "script.py")]
        with open(said, "w", encoding="utf-8") as errors:
            process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=errors)
        self.addCleanup(lambda: (process.kill(), process.wait()))

        def until(text):
            self.assertTrue(wait_until(lambda: text in said.read_text(), MANY_S), said.read_text())

        until("round 1: 1 pipeline x 1 stage on localhost 1")
        self.assertRegex(self.heturun("add", "localhost", "2", "--job", str(run)),
                         rf"^job [0-9a-f]{{6}}: localhost has 3 workers in {re.escape(str(self.list))} \(1 before\)\n$")
        until("the machines change: there are 3 workers; the workers save")
        until("round 2: ")
        error = self.heturun("add", "no-such-host.invalid", "--job", str(run), status=2)
        self.assertRegex(error, r"^heturun add: no-such-host.invalid: .*; \S+ is unchanged\n$")
        left = self.heturun("remove", "localhost", "--job", str(run))
        self.assertRegex(left, r": localhost is no longer in \S+; no machine is left, so the job saves and waits\n$")
        until("no machine is left; the job waits for a line in")
        self.heturun("stop", str(run))
        self.assertEqual(process.wait(MANY_S), 0)
        self.assertRegex(self.heturun("add", "localhost", "--job", str(run), status=2), "doesn't run any more: finished\n$")


if __name__ == "__main__":
    unittest.main()

"""Jobs that srun starts without heturun, under a real Slurm of one node in a separate folder.

Results equal those of heturun. Covers a killed task, two steps at once, a batch script and an interactive step. Skipped
where Slurm's daemons are not installed; they must run as root."""
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from processes import processes_with, wait_until
from train_cases import END_S, HETURUN, MANY_S, TrainCase, checksums

DAEMONS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "sinfo", "scancel")
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
MET = [sys.executable, str(pathlib.Path(__file__).with_name("met_worker.py"))]
CONFIG = """\
ClusterName=scratch
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} State=UNKNOWN
PartitionName=all Nodes={host} Default=YES OverSubscribe=FORCE:8 State=UP
"""


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def _die_with_parent():
    import ctypes
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)


class Srun(TrainCase):
    @classmethod
    def setUpClass(cls):
        missing = [name for name in DAEMONS if not shutil.which(name, path=PATH)]
        if missing:
            raise unittest.SkipTest(f"not installed: {', '.join(missing)}")
        if os.getuid() != 0:
            raise unittest.SkipTest("not root: slurmd starts tasks as root")
        super().setUpClass()
        cls.slurm = tempfile.mkdtemp(prefix="hetu-slurm-")
        cls.addClassCleanup(shutil.rmtree, cls.slurm, ignore_errors=True)
        for name in ("state", "spool"):
            os.mkdir(os.path.join(cls.slurm, name))
        with open(os.path.join(cls.slurm, "key"), "wb") as file:
            file.write(os.urandom(1024))
        os.chmod(file.name, 0o400)
        cls.conf = os.path.join(cls.slurm, "slurm.conf")
        host = socket.gethostname().split(".")[0]
        with open(cls.conf, "w", encoding="utf-8") as file:
            file.write(CONFIG.format(host=host, ports=(free_port(), free_port()), folder=cls.slurm,
                                     cores=len(os.sched_getaffinity(0))))
        cls.slurm_env = {**os.environ, "PATH": PATH, "SLURM_CONF": cls.conf}
        cls.daemon("munged", "--foreground", "--force", f"--key-file={cls.slurm}/key",
                   f"--socket={cls.slurm}/munge.socket", f"--pid-file={cls.slurm}/munge.pid",
                   f"--log-file={cls.slurm}/munge.log", f"--seed-file={cls.slurm}/munge.seed")
        if not wait_until(lambda: os.path.exists(f"{cls.slurm}/munge.socket"), END_S):
            raise OSError("munged does not start")
        cls.daemon("slurmctld", "-D", "-f", cls.conf)
        cls.daemon("slurmd", "-D", "-f", cls.conf)

        def idle():
            said = subprocess.run(["sinfo", "-h", "-o", "%t"], env=cls.slurm_env, capture_output=True, text=True).stdout
            return said.strip() == "idle"
        if not wait_until(idle, 60):
            raise OSError("the node does not become idle")

    @classmethod
    def daemon(cls, *words):
        log = open(os.path.join(cls.slurm, words[0] + ".out"), "wb")
        process = subprocess.Popen(words, env=cls.slurm_env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                   preexec_fn=_die_with_parent)
        log.close()
        cls.addClassCleanup(process.wait)
        cls.addClassCleanup(process.kill)

    def setUp(self):
        super().setUp()
        self.env = {k: v for k, v in self.env.items() if k not in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
        self.env.update(PATH=PATH, SLURM_CONF=self.conf)

    def srun(self, *words, **more):
        process = subprocess.Popen(["srun", *map(str, words)], env={**self.env, **more}, text=True, cwd=self.folder,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.communicate)
        self.addCleanup(lambda: process.poll() is None and process.terminate())
        return process

    def ends(self, process, status=0):
        out, err = process.communicate(timeout=MANY_S)
        self.assertEqual(process.returncode, status, f"{out}\n{err}")
        return out, err

    def bert(self, *options):
        words, log = self.command((1, 2), *options)
        return words[words.index(sys.executable, len(HETURUN)):], log

    def test_two_tasks_train_to_the_bits_of_heturun(self):
        one, two = self.folder / "srun", self.folder / "heturun"
        self.ends(self.srun("-n", 2, *self.bert("--steps", 4, "--checkpoint", one)[0]))
        self.train((1, 2), "--steps", 4, "--checkpoint", two)
        self.assertEqual(checksums(one), checksums(two))

    def test_a_task_that_is_killed_ends_the_step(self):
        words, log = self.bert("--steps", 1000000)
        step = self.srun("-n", 2, *words)
        self.assertTrue(wait_until(lambda: log.exists() and log.read_text().count("\n") > 3, MANY_S))
        for pid in processes_with(self.mark):
            with open(f"/proc/{pid}/environ", "rb") as file:
                if b"\0SLURM_PROCID=1\0" in b"\0" + file.read():
                    os.kill(pid, signal.SIGKILL)
        since = time.monotonic()
        _, err = step.communicate(timeout=MANY_S)
        self.assertLess(time.monotonic() - since, END_S)
        self.assertNotEqual(step.returncode, 0)
        self.assertRegex(err, r"worker 1 \(host \S+\) has ended without leaving the job")

    def test_steps_side_by_side_do_not_meet(self):
        for step in [self.srun("-n", 2, "--overlap", *MET, "open") for _ in range(2)]:
            out, _ = self.ends(step)
            self.assertEqual(sorted(out.splitlines())[:2], ["linked 0 2", "linked 1 2"])

    def test_one_task_and_a_batch_script_are_processes_of_their_own(self):
        self.assertEqual(self.ends(self.srun("-n", 1, *MET, "alone"))[0], "alone\n")
        script, said = self.folder / "batch.sh", self.folder / "batch.out"
        script.write_text(f"#!/bin/sh\nexec {' '.join(MET)} alone\n")
        subprocess.run(["sbatch", "-n", "2", "-o", said, script], env=self.env, check=True, capture_output=True)
        self.assertTrue(wait_until(lambda: said.exists() and said.read_text(), 60))
        self.assertEqual(said.read_text(), "alone\n")


if __name__ == "__main__":
    unittest.main(verbosity=2)

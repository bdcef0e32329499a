"""heturun's TCP channel for jobs on several hosts. This host plays the part of another one."""
import os
import re
import signal
import subprocess
import sys
import time
import unittest

from hetu.launch import guard
from launch_test import END_S, MANY, SLEEPER, LaunchCase
from processes import parent_of


class OverTcp(LaunchCase):
    PRETEND = ("import sys; from hetu.launch import command_line, network, remote\n"
               "remote.check = lambda *_: []\n"
               "network.is_this_host = lambda host: False\n"
               "name = next((n for n in network.interfaces() if n != 'lo'), 'lo')  # Open MPI 5 takes no loopback\n"
               "command_line.choose_interface = lambda *_: (name, ['127.0.0.2', '127.0.0.1'])\n"
               "sys.exit(command_line.main(sys.argv[1:]))\n")

    def job_over_tcp(self, *args):
        return subprocess.Popen([sys.executable, "-c", self.PRETEND, *args], env=self.env, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL, start_new_session=True)

    def test_output_variables_and_status(self):
        self.env["HETU_THREADS"] = "3"
        process = self.job_over_tcp("-w", "2", "sh", "-c", "echo $HETU_THREADS $HETU_HOSTS '$X'; exit 6")
        out, error = process.communicate(timeout=MANY)
        self.assertEqual(process.returncode, 6, error)
        self.assertIn("[1] 3 localhost:2 $X\n", out)

    def test_a_silent_host_is_taken_for_dead(self):
        process = self.job_over_tcp("-w", "2", *SLEEPER)
        pids = {}
        while len(pids) < 2:
            line = process.stdout.readline()
            self.assertTrue(line, "the job ended")
            if found := re.match(r"\[(\d)\] up (\d+) (\w+)", line):
                pids[found[1]] = int(found[2])
        start = time.monotonic()
        os.kill(parent_of(pids["1"]), signal.SIGSTOP)  # like a host without power: no end of file
        _, error = process.communicate(timeout=MANY)
        self.assertEqual(process.returncode, 137, error)
        self.assertIn("worker 1 ", error)
        self.assertIn(f"is silent for {guard.DEAD_S:g} s: its host or the network is lost, or its guard is stopped", error)
        self.assertLess(time.monotonic() - start, guard.DEAD_S + END_S)

    def test_the_first_control_c_saves(self):
        script = ("import os, signal, sys, time\n"
                  "from hetu import progress\n"
                  "signal.signal(signal.SIGUSR1, lambda *_: (print('saved'), sys.exit(0)))\n"
                  "progress.tell({'pid': os.getpid(), 'training': 'saves'})\n"
                  "print('up', flush=True)\n"
                  "while True: time.sleep(1)\n")
        process = self.job_over_tcp("-w", "2", sys.executable, "-c", script)
        for _ in range(2):
            self.assertIn("] up\n", process.stdout.readline())
        time.sleep(0.2)  # reports of training arrive by another pipe
        os.killpg(process.pid, signal.SIGINT)
        out, error = process.communicate(timeout=MANY)
        self.assertEqual(process.returncode, 0, error)
        self.assertEqual(sorted(out.splitlines()), ["[0] saved", "[1] saved"])

    def test_a_paused_terminal_pauses_the_job(self):
        """A terminal is paused for longer than the limit of silence. The quiet worker's guard still receives heartbeats from
        heturun."""
        command = "test $OMPI_COMM_WORLD_RANK = 1 && sleep 12 || seq 2000000; echo last"
        process = self.job_over_tcp("-w", "2", "sh", "-c", command)
        self.assertEqual(process.stderr.readline(), "Cluster: {\n")
        time.sleep(11)
        out, error = process.communicate(timeout=MANY)
        self.assertEqual(process.returncode, 0, error)
        self.assertIn("[0] 2000000\n", out)
        for worker in (0, 1):
            self.assertIn(f"[{worker}] last\n", out)


if __name__ == "__main__":
    unittest.main()

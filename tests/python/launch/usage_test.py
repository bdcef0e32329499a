"""heturun's flags, cluster files, Slurm and environment: each error is one line, and missing settings are detected."""
import os
import tempfile
import unittest

from launch_test import LaunchCase


class Usage(LaunchCase):
    def refused(self, part, *args):
        done = self.run_it(*args)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(part, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertEqual(done.stdout, "")

    def write(self, text):
        with tempfile.NamedTemporaryFile("w", suffix=".yml", delete=False) as file:
            file.write(text)
        self.addCleanup(os.unlink, file.name)
        return file.name

    def test_flags(self):
        none = "without -c, and outside a Slurm allocation, the number of local workers must be given and above 0"
        self.refused(none, "true")
        self.refused(none, "-w", "0", "true")
        self.refused("-w -1: it must be a whole number", "-w", "-1", "true")
        self.refused("-w two: it must be a whole number", "-w", "two", "true")
        self.refused("no command was given", "-w", "2")
        self.refused("option -q not recognized", "-q", "true")
        self.refused("-w and -s can't be used with -c; the cluster file sets the numbers",
                     "-c", "config/local.yml", "-w", "2", "true")
        self.refused("-i /no/key: no such file", "-w", "2", "-i", "/no/key", "true")
        self.refused("--server-log /no/folder: it must be an existing, writable folder",
                     "-w", "1", "--server-log", "/no/folder", "true")
        self.refused("--server-log /tmp: with --no-server-restart there is no log; leave one out",
                     "-w", "1", "--no-server-restart", "--server-log", "/tmp", "true")

    def test_cluster_files(self):
        two = self.write("nodes:\n  - {host: w0, workers: 1, chief: true}\n  - {host: w1, workers: 1, chief: true}\n")
        self.refused(f"{two}:3: 'w0' and 'w1' are both chief", "-c", two, "true")
        key = self.write("nodes:\n  - {host: w0, gpus: 1, chief: true}\n")
        self.refused(f"{key}:2: unknown key 'gpus' of a node; known keys: host, servers, workers, chief",
                     "-c", key, "true")

    def test_slurm(self):
        self.env.update(SLURM_JOB_NODELIST="w[0-", SLURM_TASKS_PER_NODE="2")
        self.refused("SLURM_JOB_NODELIST: 'w[0-' is not a list of hosts such as w[0-3],gpu7", "true")
        self.env.update(SLURM_JOB_NODELIST="localhost")
        done = self.run_it("echo", "up")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("] up\n"), 2)
        done = self.run_it("-w", "1", "echo", "up")  # arguments take precedence over the allocation
        self.assertEqual(done.stdout, "up\n", done.stderr)

    def test_missing_cluster_file(self):
        done = self.run_it("-c", "/no/such.yml", "true")
        self.assertEqual(done.returncode, 4)
        self.assertIn("cluster file /no/such.yml: cannot be opened", done.stderr)

    def test_wrong_environment_is_named_before_anything_starts(self):
        self.env["HETU_TIMEOUT"] = "soon"
        self.refused("environment variable HETU_TIMEOUT: got 'soon'; it must be a number of seconds", "-w", "2", "true")

    def test_a_shipped_file_is_found_from_anywhere(self):
        done = self.run_it("-c", "config/local.yml", "echo", "up", cwd="/")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("] up\n"), 4)

    def test_warns_of_other_top_level_keys(self):
        path = self.write("shared: {}\nnodes:\n  - {host: localhost, workers: 1, chief: true}\n")
        done = self.run_it("-c", path, "true")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"warning: {path}:1: top-level key 'shared' is ignored", done.stderr)


if __name__ == "__main__":
    unittest.main()

"""Jobs on two hosts over ssh and TCP: SD-PIPE's two command lines from `python/`, a link that goes down, and ends.

`hosts_test.py --whole` adds tests that take minutes."""
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import time
import unittest

from hosts_case import AVERAGED, BERT, END_S, FOREVER, README_BERT, README_RESNET, WORKERS, HostsCase, slow

from hetu.launch import guard
from processes import wait_until
from train_cases import MANY_S, checksums, manifest_of

LATE_S = 20.0  # twice the bound that docs/hosts.md promises for a report: a loaded machine may be late


class Readme(HostsCase):
    """The unchanged command lines of SD-PIPE's README."""

    def same_weights(self, line, options, devices="pipe_2_2"):
        """Trains on both hosts and on one, and compares the weights. Returns the result of the first."""
        one, two = self.folder / "one", self.folder / "two"
        done = self.check(self.on_w0(self.words(line, *options, "--checkpoint", two, "--devices", devices)))
        self.assertIn(f"  Workers({2 * WORKERS}): {{'w0': {WORKERS}, 'w1': {WORKERS}}},\n", done.stderr)
        self.assertIn("heturun: interface hetu0, network 10.77.0.0/30; w0 10.77.0.1, w1 10.77.0.2; "
                      "--interface overrides\n", done.stderr)
        self.check(self.alone(line, *options, "--checkpoint", one))
        self.assertEqual(checksums(two), checksums(one))
        return done

    def test_bert(self):
        done = self.same_weights(README_BERT, self.bert("--steps", 8))
        self.assertIn("pipedream, pipe_2_2: 2 pipelines x 2 stages", done.stdout)

    def averages(self, script, *options):
        """Trains on both hosts by the unchanged line. Both stages of both pipelines average."""
        line, log = AVERAGED[script], self.folder / "groups.jsonl"
        self.assertEqual(shlex.split(line)[-3:], ["--pipeline", "pipedream", "--preduce"])
        self.check(self.on_w0(self.words(line, *options, "--group-log", log, "--devices", "pipe_2_2")))
        groups = [json.loads(line) for line in log.read_text().splitlines()]
        self.assertEqual({group["stage"] for group in groups}, {0, 1})
        self.assertEqual({member for group in groups for member in group["members"]}, {0, 1})
        self.assertTrue(any(len(group["members"]) == 2 for group in groups))

    def test_bert_that_averages_weights(self):
        """The coordinator runs on w0, and w1 connects to it. No key is on any command line."""
        model = self.folder / "untied.json"
        model.write_text(json.dumps({**json.loads(self.model.read_text()), "tie_word_embeddings": False}))
        self.averages("train_bert.py", *self.bert("--model", model, "--steps", 8))

    def test_bert_by_waves(self):
        """The parameter server of the YAML runs on w0, and pipelines on both hosts connect to it."""
        model = self.folder / "untied.json"
        model.write_text(json.dumps({**json.loads(self.model.read_text()), "tie_word_embeddings": False}))
        line = README_BERT.replace("--pipeline pipedream", "--pipeline hetpipe")
        done = self.check(self.on_w0(self.words(line, *self.bert("--model", model, "--steps", 6, "--wave", 4),
                                                "--checkpoint", self.folder / "saved", "--devices", "pipe_across")))
        self.assertIn("  Servers(1): {'w0': 1},\n", done.stderr)
        self.assertIn("hetpipe, pipe_across: 2 pipelines x 2 stages", done.stdout)
        self.assertEqual(manifest_of(self.folder / "saved")[1]["step"], 6)

    def test_resnet_that_averages_weights(self):
        self.averages("train_resnet.py", *self.resnet(16, "--model", "resnet18", "--batch-size", 8, "--steps", 3))

    def test_resnet(self):
        """Trains resnet18 on 32 pixels. The folders come from SD-PIPE's environment variables."""
        done = self.same_weights(README_RESNET, self.resnet(16, "--model", "resnet18", "--batch-size", 8, "--steps", 3))
        self.assertIn("pipedream, pipe_2_2: 2 pipelines x 2 stages", done.stdout)
        self.assertRegex(done.stdout, r"\[0@w0\] 0 EVAL  loss \d+\.\d{4} acc [01]\.\d{4}")

    @slow
    def test_resnet50(self):
        self.same_weights(README_RESNET, self.resnet(64, "--steps", 2))

    @slow
    def test_bert_in_pipelines_over_both_hosts(self):
        done = self.same_weights(BERT, self.bert("--steps", 6), "pipe_across")
        self.assertIn("pipe_across: 2 pipelines x 2 stages", done.stdout)

    @slow
    def test_the_default_list_is_the_one_exported_as_my_device(self):
        done = self.check(self.on_w0(self.words(BERT, *self.bert("--steps", 1))))
        self.assertIn("my_device: 2 pipelines x 2 stages", done.stdout)

    @slow
    def test_a_checkpoint_folder_that_the_hosts_do_not_share(self):
        for host in ("w0", "w1"):
            self.check(self.hosts.run(host, "mkdir", "-p", "/dev/shm/own"))
        done = self.on_w0(self.words(BERT, *self.bert("--steps", 3, "--checkpoint", "/dev/shm/own/saved")))
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("train_bert.py: /dev/shm/own/saved: worker 2 on w1 does not see a file that worker 0 on w0 wrote "
                      "there; use a folder that all hosts share\n", done.stderr)
        self.assertNotIn("TRAIN", done.stdout)
        for host in ("w0", "w1"):
            self.assertEqual(self.hosts.run(host, "ls", "-A", "/dev/shm/own").stdout, "")

    @slow
    def test_from_a_host_that_has_no_worker(self):
        path = self.folder / "cluster.yml"
        path.write_text("nodes:\n  - {host: w1, workers: 2, chief: true}\n")
        done = self.check(self.hosts.run("w0", "heturun", "-i", self.hosts.key, "-c", path, "sh", "-c", "hostname",
                                         cwd=self.place, env=self.env))
        self.assertEqual(done.stdout.count("] w1\n"), 2, done.stdout)


class Named(HostsCase):
    """Host names with "_" or with 55 letters work, although Open MPI's usual compression of host lists supports neither."""

    called = {"w0": "gpu_node_0", "w1": "gpu-" + "very-" * 11 + "long"}

    def test_trains_on_hosts_with_such_names(self):
        path = self.folder / "cluster.yml"
        one, other = self.called.values()
        path.write_text(f"nodes:\n  - {{host: {one}, workers: 1, chief: true}}\n  - {{host: {other}, workers: 1}}\n")
        command = "hostname; exec hetu rehearse 1f1b --stages 2 --micro-batches 4 --repeat 1 --time-unit 1ms"
        done = self.check(self.on_w0(["heturun", "-i", self.hosts.key, "-c", path, "sh", "-c", command]))
        for name in (one, other):
            self.assertIn(f"] {name}\n", done.stdout)
        self.assertIn("worker 1 (sum)", done.stdout)


class Ends(HostsCase):
    """Early ends of jobs on two hosts."""

    def start(self, *more, line=BERT):
        """Starts a training over both hosts. Returns (process, its log) after some steps."""
        log = self.folder / "log.jsonl"
        words = self.words(line, *self.bert("--devices", "pipe_across", "--log", log, *more))
        process = subprocess.Popen(self.hosts.inside("w0", *words, cwd=self.place), env=self.env, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        enough = wait_until(lambda: process.poll() is not None or len(self.losses(log)) > 7)
        self.assertTrue(enough and process.poll() is None, process.communicate() if process.poll() is not None else "")
        return process, log

    @staticmethod
    def losses(log):
        """Returns {step: loss} of the complete lines of a log."""
        lines = log.read_text().rpartition("\n")[0].splitlines() if log.exists() else []
        return {record["step"]: record["loss"] for record in map(json.loads, lines)}

    def check_resumed(self, log, saved, *more, line=BERT):
        """Resumes on both hosts for 3 steps. All losses must equal those of an undisturbed run on one host. `more` is passed
        to both, for example the interval of saves, at which pipedream drains."""
        steps = manifest_of(saved)[1]["step"] + 3
        options = self.bert("--devices", "pipe_across", "--checkpoint", saved, "--resume", "--log", log, "--steps", steps)
        self.check(self.on_w0(self.words(line, *options, *more)))
        whole, folder = self.folder / "whole.jsonl", self.folder / "whole"
        options = self.bert("--log", whole, "--steps", max(self.losses(log)) + 1, "--checkpoint", folder)
        self.check(self.alone(line, *options, *more))
        self.assertEqual(self.losses(log), self.losses(whole))

    def link_goes_down(self, line):
        saved, often = self.folder / "saved", ("--save-every", 4)
        process, log = self.start("--steps", FOREVER, "--checkpoint", saved, *often, line=line)
        since = time.monotonic()
        self.hosts.link("w1", "down")
        self.addCleanup(self.hosts.link, "w1", "up")
        self.check_reported(process, since, rf"heturun: worker \d \(w1, pid \d+\): is silent for {guard.DEAD_S:g} s: its "
                                            "host or the network is lost, or its guard is stopped; ending the other 2 "
                                            r"workers\n")
        process.communicate(timeout=MANY_S)
        self.assertGreater(process.returncode, 0)
        self.assertTrue(wait_until(lambda: not self.left(), END_S - (time.monotonic() - since)), self.left())
        self.hosts.link("w1", "up")
        self.check_resumed(log, saved, *often, line=line)

    def check_reported(self, process, since, pattern):
        """Checks that the pattern appears on standard error in time."""
        said = []
        for line in process.stderr:
            said.append(line)
            if re.search(pattern, line):
                self.assertLess(time.monotonic() - since, LATE_S, said)
                return
        self.fail(f"'{pattern}' is not in {said}")

    def stops_there(self, script, pattern, status):
        """Stops a process of w1 that runs `script`."""
        process, _ = self.start("--steps", FOREVER)
        since = time.monotonic()
        os.kill(next(pid for pid, words in self.hosts.left("w1").items() if script in words), signal.SIGSTOP)
        self.check_reported(process, since, pattern)
        process.communicate(timeout=MANY_S)
        self.assertEqual(process.returncode, status)
        self.assertTrue(wait_until(lambda: not self.left(), END_S - (time.monotonic() - since)), self.left())

    def test_a_stopped_guard_on_the_other_host(self):
        says = r"heturun: worker \d \(w1, pid \d+\): is silent for .*, or its guard is stopped"
        self.stops_there("run_guard.py", says, 137)

    @slow
    def test_a_stopped_daemon_of_open_mpi_on_the_other_host(self):
        self.stops_there("/orted", r"heturun: Open MPI's daemon on w1 \(pid \d+\) is stopped by a signal such as SIGSTOP", 5)

    def test_a_link_that_goes_down(self):
        self.link_goes_down(BERT)

    @slow
    def test_a_link_that_goes_down_under_pipedream(self):
        self.link_goes_down(README_BERT)

    @slow
    def test_sigusr1_saves_and_exits_0_on_both_hosts(self):
        self.saves(signal.SIGUSR1, "")

    @slow
    def test_the_first_control_c_saves_on_both_hosts(self):
        self.saves(signal.SIGINT, "; a second SIGINT ends them at once")

    def saves(self, number, more):
        saved = self.folder / "saved"
        process, log = self.start("--steps", FOREVER, "--checkpoint", saved)
        os.kill(self.hosts.inner(process), number)
        out, err = process.communicate(timeout=MANY_S)
        self.assertEqual(process.returncode, 0, err)
        self.assertIn(f"SIGUSR1 sent to {2 * WORKERS} workers: checkpoint and exit{more}\n", err)
        self.assertRegex(out, r"Stopped as asked after \d+ steps; saved in ")
        self.assertEqual(manifest_of(saved)[1]["step"], len(self.losses(log)))
        self.check_resumed(log, saved)

    @slow
    def test_a_killed_worker_on_the_other_host(self):
        process, _ = self.start("--steps", FOREVER)
        since = time.monotonic()
        worker = next(pid for pid, words in self.hosts.left("w1").items() if words.startswith("python3 train_bert.py"))
        os.kill(worker, signal.SIGKILL)
        _, err = process.communicate(timeout=MANY_S)
        self.assertEqual(process.returncode, 128 + signal.SIGKILL, err)
        self.assertRegex(err, r"heturun: worker \d \(w1, pid \d+\) was killed by SIGKILL; ending the other 3 workers\n")
        self.assertTrue(wait_until(lambda: not self.left(), END_S - (time.monotonic() - since)), self.left())

    def start_of_three(self, saved, steps):
        """Starts three averaging pipelines of two stages: one on w0, one across both hosts, one on w1."""
        cluster, model = self.folder / "cluster.yml", self.folder / "untied.json"
        cluster.write_text("nodes:\n  - {host: w0, workers: 3, chief: true}\n  - {host: w1, workers: 3, chief: false}\n")
        model.write_text(json.dumps({**json.loads(self.model.read_text()), "tie_word_embeddings": False}))
        line = AVERAGED["train_bert.py"].replace("config/w0_w1.yml", str(cluster))
        line = line.replace("heturun ", "heturun --on-failure shrink ", 1)
        return self.start("--devices", "pipe_3_2", "--model", model, "--steps", steps, "--checkpoint", saved, line=line)

    def check_shrunk(self, process, saved, steps, lost):
        _, err = process.communicate(timeout=MANY_S)
        self.assertEqual(process.returncode, 0, err)
        self.assertEqual([one["pipeline"] for one in manifest_of(saved)[1]["run"]["lost"]], lost)
        self.assertEqual(manifest_of(saved)[1]["step"], steps)

    def test_shrinks_by_the_pipeline_across_both_hosts(self):
        """Every host has daemons of two mpiruns, and the lost pipeline has workers on both."""
        saved, steps = self.folder / "saved", 200
        process, _ = self.start_of_three(saved, steps)
        victim = next(pid for pid, words in self.hosts.left("w1").items() if words.startswith("python3 train_bert.py")
                      and "HETU_FIRST_WORKER=2" in pathlib.Path(f"/proc/{pid}/environ").read_text().split("\0"))
        os.kill(victim, signal.SIGKILL)
        self.check_shrunk(process, saved, steps, [1])

    @slow
    def test_shrinks_by_all_that_a_lost_host_had(self):
        saved, steps = self.folder / "saved", 2000
        process, _ = self.start_of_three(saved, steps)
        self.hosts.link("w1", "down")
        self.addCleanup(self.hosts.link, "w1", "up")
        self.check_shrunk(process, saved, steps, [1, 2])

    @slow
    def test_a_killed_heturun_leaves_nothing_on_either_host(self):
        process, _ = self.start("--steps", FOREVER)
        os.kill(self.hosts.inner(process), signal.SIGKILL)
        process.communicate(timeout=MANY_S)
        self.assertTrue(wait_until(lambda: not self.left(), END_S), self.left())


if __name__ == "__main__":
    unittest.main(argv=[word for word in sys.argv if word != "--whole"], verbosity=2)

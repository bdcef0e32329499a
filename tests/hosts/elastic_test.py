"""heturun --elastic on two hosts: a host is lost and comes back, and the training has the bits of one host."""
import json
import subprocess
import unittest

from hosts_case import BERT, HostsCase

from processes import wait_until
from train_cases import MANY_S, checksums

STEPS = 300


class Elastic(HostsCase):
    def test_a_lost_host_comes_back(self):
        saved, log, list_of_hosts = self.folder / "saved", self.folder / "log.jsonl", self.folder / "hosts"
        errors = self.folder / "errors"
        list_of_hosts.write_text("w0 2\nw1 2\n")
        training = [*self.bert("--devices", "pipe_2_2", "--pipeline", "1f1b", "--batch-size", 8, "--micro-batches", 2,
                               "--steps", STEPS, "--save-every", 20, "--learning-rate", 1e-5)]
        line = ["heturun", "--elastic", "--machines", list_of_hosts, "-i", self.hosts.key, "python3", "train_bert.py",
                *training, "--checkpoint", saved, "--log", log]
        with open(errors, "w", encoding="utf-8") as file:
            process = subprocess.Popen(self.hosts.inside("w0", *line, cwd=self.place), env=self.env, stderr=file,
                                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self.addCleanup(lambda: process.poll() is None and process.kill())

        def said():
            return [text[9:] for text in errors.read_text().splitlines() if text.startswith("heturun: ")]

        def steps():
            return len(log.read_text().splitlines()) if log.exists() else 0

        def until(what, true):
            found = wait_until(lambda: process.poll() is not None or true(), MANY_S)
            self.assertTrue(found and process.poll() is None, f"{what}: {errors.read_text()}")

        until("some steps", lambda: steps() > 30)
        self.hosts.link("w1", "down")
        self.addCleanup(self.hosts.link, "w1", "up")
        until("a round without w1", lambda: any(text.startswith("round 2: ") for text in said()))
        self.assertTrue(any(text.startswith("w1 is left out: ssh does not reach it") for text in said()), said())
        self.assertIn("round 2: 1 pipeline x 2 stages on w0 2", said())
        before = steps()
        until("steps on w0", lambda: steps() > before + 20)
        self.hosts.link("w1", "up")
        list_of_hosts.write_text("w0 2\nw1 2\n")
        until("a round with w1", lambda: "round 3: 2 pipelines x 2 stages on w0 2, w1 2" in said())
        self.assertEqual(process.wait(MANY_S), 0, errors.read_text())
        alone, whole = self.folder / "alone", self.folder / "alone.jsonl"
        self.check(self.alone(BERT, *training, "--sums", "tree", "--checkpoint", alone, "--log", whole))
        records = [[(one["step"], one["loss"]) for one in map(json.loads, file.read_text().splitlines())]
                   for file in (log, whole)]
        self.assertEqual([step for step, _ in records[0]], list(range(STEPS)))
        self.assertEqual(*records)
        self.assertEqual(checksums(saved), checksums(alone))


if __name__ == "__main__":
    unittest.main()

"""train_bert.py with pipelines that average their weights: --preduce and --adpsgd through heturun, with the coordinator.

tests/executor/sync/average_test.cpp checks the averages, and tests/pipeline/groups checks the groups. --whole: every
method with several stages and a resume."""
import json
import re
import signal
import sys
import unittest

from processes import wait_until
from train_cases import MANY_S, MODEL, TrainCase, checksums, manifest_of, tensors

WHOLE = "--whole" in sys.argv
PREDUCE = ("--pipeline", "pipedream", "--micro-batches", "1", "--optimizer", "sgd")
METHODS = {
    "preduce": ("--preduce",), "all": ("--preduce", "--sync-period", "1"), "adpsgd": ("--adpsgd",),
    "lockstep": ("--adpsgd", "lockstep"),
    "staleness": ("--preduce", "--preduce-weights", "staleness", "--slow", "pipeline=1,factor=3"),
}


def updates_of(log):
    """Returns the final number of updates of each pipeline, from a group log."""
    updates = {}
    for line in log.read_text().splitlines():
        group = json.loads(line)
        for pipeline, update in zip(group.get("members", []), group.get("updates", []), strict=True):
            updates[pipeline] = max(update, updates.get(pipeline, 0))
    return updates


class Averaged(TrainCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model.write_text(json.dumps({**MODEL, "tie_word_embeddings": False, "hidden_dropout_prob": 0.0}))

    def test_trains_logs_its_groups_and_resumes(self):
        for name, options in METHODS.items():
            whole = WHOLE or name in ("preduce", "lockstep")
            with self.subTest(method=name):
                grid = (2, 2 if whole else 1)
                folder, log = self.folder / name, self.folder / f"{name}.jsonl"
                words = (*PREDUCE, *options, "--checkpoint", folder, "--name", name)
                done = self.train(grid, *words, "--steps", 24, "--save-every", 8, "--group-log", log)
                self.assertEqual(done.steps[0], 0)
                # Two pipelines do 48 updates together. The faster one does more than 24.
                self.assertGreaterEqual(sum(updates_of(log).values()), 48)
                self.assertLess(sum(done.losses[-5:]), sum(done.losses[:5]))
                self.assertEqual(manifest_of(folder)[1]["step"], 24)
                run = manifest_of(folder)[1]["run"]
                self.assertEqual(len(run["positions"]), 2)
                means = [line for line in done.out.splitlines() if "mean group size" in line]
                self.assertEqual(len(means), 2, done.out)  # one line per pipeline, by its last stage
                groups = [json.loads(line) for line in log.read_text().splitlines()]
                groups = [g for g in groups if "members" in g]
                self.assertTrue(all(1 <= len(g["members"]) <= 2 for g in groups))
                self.assertTrue(any(len(g["members"]) == 2 for g in groups))
                if name == "all":
                    self.assertTrue(all(len(g["members"]) == 2 for g in groups))
                shares = [g["weights"] for g in groups if "weights" in g]
                self.assertEqual(bool(shares), name == "staleness")
                self.assertTrue(all(min(share) < max(share) for share in shares))
                if whole:
                    self.goes_on(log, lambda grid=grid, words=words, log=log: self.train(
                        grid, *words, "--steps", 30, "--resume", "--group-log", log))
                    self.assertEqual(manifest_of(folder)[1]["step"], 30)

    def goes_on(self, log, resume):
        """Checks the log of a run that resumes from step 24: earlier entries stay, and entries of a previous run from step
        24 are removed."""
        before = log.read_text()
        with log.open("a") as file:
            file.write('{"run":24,"time_us":1,"lost":1}\n{"run":24,"ti')
        resume()
        after = log.read_text()
        self.assertTrue(after.startswith(before))
        self.assertEqual([*{json.loads(line)["run"]: 0 for line in after.splitlines()}], [0, 8, 16, 24])
        for stage in range(2):
            groups = [g for g in map(json.loads, after.splitlines()) if g["stage"] == stage]
            self.assertEqual([g["serial"] for g in groups], list(range(len(groups))))
            # a passive partner may not have made any update
            for count in (max(g["updates"]) for g in groups if g["run"] == 24):
                self.assertGreater(count, 24)

    def test_a_slow_pipeline_stops_nobody(self):
        log = self.folder / "groups.jsonl"
        self.train((2, 1), *PREDUCE, "--preduce", "--steps", 60, "--slow", "pipeline=1,factor=8", "--group-log", log)
        updates = updates_of(log)
        self.assertGreater(updates[0], 1.5 * updates[1])
        self.assertGreaterEqual(sum(updates.values()), 120)

    def test_checkpoints_hold_one_copy_and_go_on_with_the_sum_of_gradients(self):
        folder = self.folder / "saved"
        self.train((2, 2), *PREDUCE, "--preduce", "--steps", 10, "--checkpoint", folder)
        before = checksums(folder)
        self.train((2, 1), *PREDUCE, "--steps", 12, "--checkpoint", folder, "--resume")
        after = tensors(folder)
        self.assertEqual(manifest_of(folder)[1]["step"], 12)
        self.assertEqual(set(before), set(after))

    def test_a_stop_says_one_step(self):
        """The progress line, the stop line and the checkpoint name the mean step, although one pipeline is far ahead."""
        folder = self.folder / "stopped"
        process, log = self.start((2, 1), *PREDUCE, "--preduce", "--steps", 10 ** 6, "--slow", "pipeline=1,factor=6",
                                  "--checkpoint", folder)
        self.assertTrue(wait_until(lambda: log.exists() and log.read_text().count("\n") > 60), process.poll())
        process.send_signal(signal.SIGUSR1)
        out, err = process.communicate(timeout=MANY_S)
        self.assertEqual(process.returncode, 0, out + err)
        stopped = int(re.search(r"Stopped as asked after (\d+) steps, the mean of 2 pipelines; saved", out)[1])
        shown = int(re.findall(r"^step (\d+)/1000000", err, re.M)[-1])
        self.assertEqual(manifest_of(folder)[1]["step"], stopped)
        self.assertLess(abs(shown - stopped), 6, (shown, stopped))

    def test_what_does_not_fit_is_said_in_one_line(self):
        cases = [
            ((1, 2), (*PREDUCE, "--preduce"),
             "preduce needs at least 2 pipelines, but the job has 1. Give devices for at least 2"),
            ((2, 1), ("--pipeline", "gpipe", "--preduce"), "'gpipe' sums gradients"),
            ((2, 1), (*PREDUCE, "--preduce", "--sync-period", "0"), "--sync-period must be >= 1, got 0"),
            ((2, 1), (*PREDUCE, "--preduce", "--min-group", "3"), "3"),
            ((2, 1), (*PREDUCE, "--sync-period", "5"), "belongs to --preduce"),
            ((2, 1), (*PREDUCE, "--adpsgd", "--preduce-weights", "staleness"),
             "AD-PSGD always averages two pipelines"),
            ((2, 1), (*PREDUCE, "--slow", "worker=7,factor=2"), "there is no worker 7; the job has workers 0…1"),
            ((2, 1), (*PREDUCE, "--slow", "pipeline=2,factor=2"), "there is no pipeline 2; the job has pipelines 0…1"),
            ((2, 1), (*PREDUCE, "--slow", "factor=2"), "--slow: needs a pipeline or a worker"),
            ((2, 1), (*PREDUCE, "--slow", "host=2,factor=2"), "--slow: unknown 'host'; known: pipeline, worker"),
            ((2, 1), (*PREDUCE, "--hetero", "-1"), "--hetero must be >= 0"),
        ]
        for number, (grid, options, says) in enumerate(cases):
            with self.subTest(options=options):
                refused = self.refused if WHOLE or number % 5 == 0 else self.refused_in_plan
                refused(grid, *options, "--steps", 2, says=says)


if __name__ == "__main__":
    unittest.main(argv=[word for word in sys.argv if word != "--whole"])

"""One model or job that a service shares: several threads, calls that fail, and processes that fork.

Good calls give the bits of a fresh object, and no call ends in an assertion."""
import multiprocessing
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

import numpy as np

import hetu as ht
from hetu import nn
from train_cases import HETURUN

ROWS, WORDS = 8, 10
SEED = 11


def make_job(items=None, **told):
    """Returns a job of an embedding, a batch norm and a linear layer, and its logits. `items` are the training batches."""
    ht.new_graph()
    data = ht.data.Batches(items or [batch(0)] * 4, batch_size=ROWS)
    hidden = nn.BatchNorm1d(4).named("norm")(nn.Embedding(WORDS, 4).named("words")(data.i).sum(1))
    logits = nn.Linear(4, 3).named("out")(hidden + data.x)
    loss = ht.models.mean_cross_entropy(logits, data.y, "loss")
    fetches = {"train": [loss, ht.optim.Adam(0.01).minimize(loss)], "predict": [logits], "evaluate": [loss]}
    return ht.Executor(fetches, threads=1, **told), logits


def batch(step, fault=None):
    """Returns the rows of a step. With `fault`, one row is wrong in one of three ways."""
    draw = np.random.default_rng([SEED, step])
    rows = {"i": draw.integers(0, WORDS, (ROWS, 2)).astype(np.int32),
            "x": draw.standard_normal((ROWS, 4)).astype(np.float32),
            "y": draw.integers(0, 3, ROWS).astype(np.int32)}
    if fault == "index":
        rows["i"][-1, 0] = WORDS
    if fault == "label":
        rows["y"][2] = 3
    if fault == "nan":
        rows["x"][1, 1] = np.nan
    return rows


def doubled(rows):
    """Returns the rows of a step of two pipelines."""
    return {name: np.concatenate([array, array]) for name, array in rows.items()}


def inputs(rows):
    return {"i": rows["i"], "x": rows["x"]}


def saved(folder):
    job, logits = make_job()
    list(job.run("train", steps=2))
    job.save(folder, fetches=[logits])


def weights(job):
    return {name: array.tobytes() for name, array in job.weights().items()}


class Failures(unittest.TestCase):
    """Failing calls at random places between good ones."""

    def check_refused(self, call):
        with self.assertRaises(Exception) as caught:
            call()
        self.assertNotIn("assertion", str(caught.exception))
        self.assertNotIn("bug in Hetu", str(caught.exception))
        return str(caught.exception)

    def test_a_predictor(self):
        with tempfile.TemporaryDirectory() as folder:
            saved(folder)
            shared, fresh, draw = ht.load(folder), ht.load(folder), random.Random(SEED)
            for call in range(60):
                rows = inputs(batch(call))
                kind = draw.choice(["good", "index", "field", "shape", "dtype", "rows"])
                if kind == "index":
                    self.assertIn("outside", self.check_refused(lambda call=call: shared(**inputs(batch(call, "index")))))
                elif kind == "field":
                    self.check_refused(lambda rows=rows: shared(i=rows["i"]))
                elif kind == "shape":
                    self.check_refused(lambda rows=rows: shared(**{**rows, "x": rows["x"][:, :3]}))
                elif kind == "dtype":
                    self.check_refused(lambda rows=rows: shared(**{**rows, "i": rows["x"][:, :2] + 0.5}))
                elif kind == "rows":
                    self.check_refused(lambda rows=rows: shared(**{**rows, "x": rows["x"][:3]}))
                else:
                    np.testing.assert_array_equal(shared(**rows), fresh(**rows), f"call {call}, seed {SEED}")

    def test_an_executor(self):
        """Training reads the batch of a failed step again, so it continues once that batch is right."""
        draw = random.Random(SEED)
        items = [batch(step) for step in range(40)]
        job, logits = make_job(items)
        fresh, of_fresh = make_job([batch(step) for step in range(40)])
        failed = 0
        while job.step < 30:
            at, kind = f"step {job.step}, seed {SEED}", draw.choice(["train", "predict", "evaluate"])
            fault = draw.choice([None, "index", "label", "nan"])
            if kind == "train" and fault:
                items[job.step] = batch(job.step, fault)
                self.check_refused(lambda: list(job.run("train", steps=1)))
                items[job.step] = batch(job.step)
                failed += 1
            elif kind == "train":
                (one,), (other,) = job.run("train", steps=1), fresh.run("train", steps=1)
                self.assertEqual((one.index, one.loss, one.gradient_norm),
                                 (other.index, other.loss, other.gradient_norm), at)
            elif kind == "predict":
                if fault == "index":
                    self.check_refused(lambda: job.predict(inputs(batch(1, "index")), fetches=[logits]))
                np.testing.assert_array_equal(job.predict(inputs(batch(3)), fetches=[logits]),
                                              fresh.predict(inputs(batch(3)), fetches=[of_fresh]), at)
            else:
                if fault in ("index", "label"):
                    self.check_refused(lambda fault=fault: job.evaluate(batch(2, fault)))
                self.assertEqual(job.evaluate(batch(2)), fresh.evaluate(batch(2)), at)
            self.assertEqual(weights(job), weights(fresh), at)
        self.assertGreater(failed, 5)

    def test_an_exception_of_the_data(self):
        """An exception of the user's data doesn't change the job's state."""
        ill = [True]

        class Items:
            def __iter__(self):
                for step in range(6):
                    if step == 2 and ill[0]:
                        raise KeyError("the disk is gone")
                    yield batch(step)

        job, _ = make_job(Items())
        self.assertEqual(len(list(job.run("train", steps=2))), 2)
        for _ in range(3):
            self.assertIn("the disk is gone", self.check_refused(lambda: list(job.run("train", steps=1))))
        ill[0] = False
        fresh, _ = make_job([batch(step) for step in range(6)])
        list(job.run("train", steps=3))
        list(fresh.run("train", steps=5))
        self.assertEqual(weights(job), weights(fresh))

    def test_several_workers_name_the_first_failure(self):
        items = [doubled(rows) for rows in (batch(0), batch(1, "label"), batch(2))]
        job, logits = make_job(items, devices="threads:2x1")
        self.assertEqual(len(list(job.run("train", steps=1))), 1)
        self.assertIn("outside [0, 3)", self.check_refused(lambda: list(job.run("train", steps=1))))
        for call in (lambda: list(job.run("train", steps=1)), lambda: job.predict(inputs(batch(0)), fetches=[logits]),
                     job.weights):
            text = self.check_refused(call)
            self.assertRegex(text, "first failure was in training step 1: .*outside")


class Threads(unittest.TestCase):
    def run_threads(self, works):
        errors = []

        def watched(work):
            try:
                work()
            except BaseException as error:  # of any type: the test reports it
                errors.append(error)

        threads = [threading.Thread(target=watched, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(errors, [])

    def test_share_a_predictor(self):
        with tempfile.TemporaryDirectory() as folder:
            saved(folder)
            shared, fresh = ht.load(folder), ht.load(folder)
            right = [fresh(**inputs(batch(step))) for step in range(6)]

            def work(first):
                for call in range(60):
                    step = (first + 5 * call) % 6
                    np.testing.assert_array_equal(shared(**inputs(batch(step))), right[step])

            self.run_threads([lambda first=first: work(first) for first in range(3)])

    def test_share_an_executor(self):
        """Predictions during a training use the weights between two steps."""
        items = [batch(step) for step in range(40)]
        for told, given in (({}, items), ({"devices": "threads:2x1"}, [*map(doubled, items)])):
            with self.subTest(**told):
                job, logits = make_job(given, **told)
                fresh, of_fresh = make_job(given, **told)
                found = []

                def predict(job=job, logits=logits, found=found):
                    while job.step < 40:
                        found.append(job.predict(inputs(batch(0)), fetches=[logits]).tobytes())

                self.run_threads([lambda job=job: list(job.run("train", steps=40)), predict, predict])
                possible = {fresh.predict(inputs(batch(0)), fetches=[of_fresh]).tobytes()}
                for _ in fresh.run("train", steps=40):
                    possible.add(fresh.predict(inputs(batch(0)), fetches=[of_fresh]).tobytes())
                self.assertLessEqual(set(found), possible)
                self.assertEqual(weights(job), weights(fresh))


def answer(pipe, call):
    try:
        pipe.send(call())
    except BaseException as error:  # the parent reads the error
        pipe.send(repr(error))


class Forks(unittest.TestCase):
    """Forks after the model is loaded, as with gunicorn --preload."""

    def in_child(self, call):
        here, there = multiprocessing.get_context("fork").Pipe()
        child = multiprocessing.get_context("fork").Process(target=answer, args=(there, call))
        child.start()
        try:
            self.assertTrue(here.poll(20), "the child hangs")
            return here.recv()
        finally:
            child.kill()
            child.join()

    def test_a_child_predicts(self):
        with tempfile.TemporaryDirectory() as folder:
            saved(folder)
            rows = {name: np.concatenate([array] * 64) for name, array in inputs(batch(0)).items()}
            model = ht.load(folder, rows=256, threads=4)
            right = ht.load(folder, rows=256, threads=4)(**rows)
            for moment in ("before a call", "after a call"):
                found = self.in_child(lambda: model(**rows))
                np.testing.assert_array_equal(found, right, moment)
                np.testing.assert_array_equal(model(**rows), right)

    def test_a_child_cannot_train(self):
        job, logits = make_job()
        list(job.run("train", steps=1))
        for call in (lambda: list(job.run("train", steps=1)), lambda: job.predict(inputs(batch(0)), fetches=[logits]),
                     lambda: job.weights()):
            self.assertIn("can't be used in a forked child", self.in_child(call))
        self.assertEqual(len(list(job.run("train", steps=1))), 1)

    def test_children_that_end_leave_the_job_alone(self):
        """A child process that ends normally neither hangs nor ends its parent's job."""
        script = ("import os, sys\n"
                  "import service_test\n"
                  "told, rows = eval(sys.argv[1]), service_test.batch(0)\n"
                  "job, _ = service_test.make_job([service_test.doubled(rows) if told else rows] * 8, **told)\n"
                  "for step in job.run('train', steps=6):\n"
                  "    if step.index == 2 and os.fork() == 0:\n"
                  "        sys.exit(0)\n"
                  "    if step.index == 2:\n"
                  "        assert os.wait()[1] == 0\n"
                  "print('trained', job.step, flush=True)\n")
        environment = {**os.environ, "PYTHONPATH": f"{pathlib.Path(__file__).parent}:{os.environ.get('PYTHONPATH', '')}"}
        for start, told in (([], {}), ([*HETURUN, "-w", "2"], {"devices": "pipe_2_1"})):
            done = subprocess.run([*start, sys.executable, "-c", script, repr(told)], capture_output=True, text=True,
                                  env=environment, timeout=120)
            self.assertEqual((done.returncode, done.stdout.count("trained 6")), (0, 2 if start else 1),
                             done.stdout + done.stderr)


if __name__ == "__main__":
    signal.alarm(500)
    unittest.main()

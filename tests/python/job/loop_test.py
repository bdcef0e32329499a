"""Loops around job.run: number of steps, hooks, logs, and a job of threads."""

import contextlib
import csv
import importlib.util
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock

import numpy as np

import hetu as ht
from event_files import scalars_of
from hetu.job.hooks import Log, TensorBoard
from hetu.job.step import Pace
from train_cases import HETURUN

SEED = 4
ROWS, BATCH = 40, 8  # five steps per epoch


def build(devices=None, pipeline="1f1b", micro_batches=4, rate=0.05, pipelines=0, **more):
    """Returns an Executor for four linear blocks, with five batches per epoch."""
    ht.new_graph()
    x = np.random.default_rng(SEED).standard_normal((ROWS, 3)).astype(np.float32)
    pipelines = pipelines or (int(devices[8:].split("x")[0]) if devices else 1)
    data = ht.data.Arrays(x=x, y=x.sum(1), batch_size=BATCH // pipelines, seed=SEED)
    value = data.x
    for i in range(4):
        value = ht.ops.linear(value, ht.parameter(f"w{i}", [3 if i < 3 else 1, 3], ht.graph.normal(0.6)))
        ht.cut()
    loss = ht.step_mean((value[:, 0] - data.y) ** 2, name="loss")
    train = ht.optim.Adam(rate).minimize(loss)
    return ht.Executor({"train": [loss, train], "validate": [loss]}, devices, pipeline, micro_batches, threads=1, **more)


def losses(job, *given, **told):
    return [(step.index, step.loss) for step in job.run(*given, **told)]


class Steps(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_an_iterable_is_as_long_as_its_first_epoch(self):
        rows = np.random.default_rng(SEED).standard_normal((3, BATCH, 2)).astype(np.float32)
        items = type("Items", (), {"__iter__": lambda self: iter({"x": x} for x in rows)})()
        ht.new_graph()
        data = ht.data.Batches(items, BATCH)
        loss = ht.step_mean(ht.ops.linear(data.x, ht.parameter("w", [1, 2], ht.graph.normal(0.6)))[:, 0] ** 2, name="loss")
        job = ht.Executor({"train": [loss, ht.optim.SGD(0.1).minimize(loss)]}, threads=1)
        self.assertIs(job.data, data)
        self.assertIsNone(data.steps_per_epoch(1))
        losses(job, steps=4)
        self.assertEqual(data.steps_per_epoch(1), 3)

    def test_pipelines_of_unequal_shares(self):
        job = build("threads:3x1", micro_batches=2, shares=[1, 2, 1], sums="tree")
        self.assertEqual((job.global_batch, job.data.steps_per_epoch(3)), (4, ROWS // 4))
        self.assertEqual([step for step, _ in losses(job, steps=12)], list(range(12)))

    def test_more_and_in_all(self):
        whole = losses(build(), steps=7)
        job = build()
        self.assertEqual(losses(job) + losses(job, steps=2) + losses(job, until=3) + losses(job, until=5)
                         + losses(job, steps=2), whole)
        self.assertEqual((job.step, losses(job, until=7), losses(job, until=2)), (7, [], []))

    def test_progress_begins_with_the_global_batch(self):
        for devices, shares in ((None, " in 2 micro-batches of 4"),
                                ("threads:2x1", ", 2 pipelines x 4, each in 2 micro-batches of 2")):
            said = io.StringIO()
            with contextlib.redirect_stderr(said):
                list(build(devices, micro_batches=2).run(steps=1, hooks=[ht.hooks.Progress(1)]))
            self.assertEqual(said.getvalue().splitlines()[0], f"global batch: 8 samples per step{shares}")

    def test_paths_may_begin_with_the_home_folder(self):
        """A path that begins with ~ creates no folder named ~ in the current folder."""
        home, before = pathlib.Path(self.folder), os.getcwd()
        os.chdir(self.folder)
        self.addCleanup(os.chdir, before)
        with unittest.mock.patch.dict(os.environ, {"HOME": str(home / "home")}):
            (home / "home").mkdir()
            job = build()
            list(job.run(steps=2, checkpoint="~/saved", trace="~/trace.json",
                         hooks=[Log("~/log.csv"), TensorBoard("~/runs/mine")]))
            with self.assertRaisesRegex(OSError, f"{home}/home/none"):
                ht.load("~/none")
        self.assertEqual(sorted(path.name for path in home.iterdir()), ["home"])
        self.assertEqual(sorted(path.name for path in (home / "home").iterdir()),
                         ["log.csv", "runs", "saved", "trace.json"])

    def test_after_a_resume(self):
        whole = losses(build(), steps=9)
        self.assertEqual(losses(build(), steps=4, checkpoint=self.folder), whole[:4])
        self.assertEqual(losses(build(), steps=3, checkpoint=self.folder, resume=True), whole[4:7])
        self.assertEqual(losses(build(), until=9, checkpoint=self.folder, resume=True), whole[7:])
        self.assertEqual(losses(build(), until=9, checkpoint=self.folder, resume=True), [])

    def test_what_is_refused(self):
        job = build()
        for told, says in (
            ({"steps": 3, "until": 4}, "steps=3 counts further steps, until=4 counts all steps; give only one of them"),
            ({"steps": 0}, "steps must be a whole number >= 1, got 0"),
            ({"until": 2.5}, "until must be a whole number >= 1, got 2.5"),
            ({"steps": True}, "steps must be a whole number >= 1, got True"),
            ({"hooks": print}, "hooks must be a list, got"),
            ({"hooks": [3]}, "hooks: 3 has none of the methods on_start, on_step, on_epoch, on_end"),
            ({"epoch_steps": 0}, "epoch_steps must be >= 1, got 0"),
            ({"name": "validate", "until": 3}, "run 'validate' validates, so until would be ignored"),
            ({"name": "validate", "hooks": [print]}, "so hooks would be ignored"),
            ({"name": "predict"}, "no fetches called 'predict'; there are: train, validate"),
        ):
            with self.subTest(says), self.assertRaises(ValueError) as caught:
                job.run(**told)  # raises at once, not at the first step
            self.assertRegex(str(caught.exception), r"^loop_test\.py:\d+: ")
            self.assertIn(says, str(caught.exception))


class Seen:
    """A hook that records its calls."""

    def __init__(self):
        self.calls = []

    def on_start(self, job):
        self.calls.append(("start", job.step))

    def on_step(self, job, step):
        self.calls.append(("step", step.index))

    def on_epoch(self, job, epoch):
        self.calls.append(("epoch", epoch.number, [step.index for step in epoch.steps], epoch.drained))

    def on_end(self, job):
        self.calls.append(("end", job.step))


class Beside(unittest.TestCase):
    def test_moments_in_their_order(self):
        for devices, pipeline in ((None, "1f1b"), ("threads:1x2", "1f1b"), ("threads:1x2", "pipedream"),
                                  ("threads:2x2", "gpipe")):
            with self.subTest(devices=devices, pipeline=pipeline):
                seen, order = Seen(), []
                job = build(devices, pipeline, 1 if pipeline == "pipedream" else 4)
                for step in job.run(steps=7, hooks=[seen, lambda job, step, order=order: order.append(step.index)]):
                    self.assertEqual(order[-1], step.index)  # before the body of the loop
                self.assertEqual(seen.calls, [
                    ("start", 0), *(("step", i) for i in range(5)), ("epoch", 0, [0, 1, 2, 3, 4], True),
                    ("step", 5), ("step", 6), ("epoch", 1, [5, 6], True), ("end", 7)])
                seen.calls.clear()
                list(job.run(until=10, hooks=[seen], epoch_steps=2))
                self.assertEqual(seen.calls, [("start", 7), ("step", 7), ("epoch", 3, [7], True), ("step", 8), ("step", 9),
                                              ("epoch", 4, [8, 9], True), ("end", 10)])

    def test_a_resumed_epoch_covers_all_of_its_steps(self):
        """If a run ends or is saved within an epoch, the epoch's means are still those of an undisturbed run."""
        seen = []

        class Means:
            def on_epoch(self, job, epoch):
                seen.append((epoch.number, epoch.mean("loss"), epoch.share("loss"), epoch.samples))

        with contextlib.redirect_stdout(io.StringIO()), tempfile.TemporaryDirectory() as folder:
            list(build().run(steps=10, hooks=[Means()]))
            whole = list(seen)
            for until, every in ((2, 0), (4, 1), (7, 1), (10, 0)):
                seen.clear()
                list(build().run(until=until, every=every, checkpoint=folder, resume=until > 2, hooks=[Means()]))
                self.assertEqual([one for one in seen if one[-1] == ROWS], [one for one in whole if one in seen])
            self.assertEqual(seen[-1], whole[-1])
            self.assertEqual([number for number, *_ in whole], [0, 1])
            list(build().run(until=12, checkpoint=folder, resume=True, epoch_steps=3, hooks=[Means()]))
            self.assertEqual(seen[-1][-1], 2 * BATCH)  # epochs of another length begin anew

    def test_a_hook_may_validate_and_look(self):
        for devices in (None, "threads:1x2", "threads:2x2"):
            found = []

            class Look:
                def on_epoch(self, job, epoch):
                    found.append([step.loss for step in job.run("validate", steps=2)])  # noqa: B023

            plain = losses(build(devices), steps=6)
            self.assertEqual(losses(build(devices), steps=6, hooks=[Look()]), plain)
            self.assertEqual([len(one) for one in found], [2, 2])
            self.assertNotEqual(found[0], found[1])

    def test_it_ends_however_the_run_ends(self):
        for devices in (None, "threads:1x2"):
            for way in ("break", "raise"):
                seen, job = Seen(), build(devices)
                with self.subTest(devices=devices, way=way):
                    try:
                        for step in job.run(steps=4, hooks=[seen]):
                            if step.index == 1:
                                if way == "break":
                                    break
                                raise KeyError("mine")
                    except KeyError:
                        pass
                    del step
                    self.assertEqual(seen.calls[-1], ("end", 2))
                    if devices:  # the other workers have stopped at the same step
                        self.assertEqual([index for index, _ in losses(job, steps=2)], [2, 3])

    def test_an_error_of_a_hook_is_the_scripts(self):
        def fails(job, step):
            raise KeyError("mine")

        with self.assertRaisesRegex(KeyError, "mine"):
            list(build("threads:1x2").run(steps=2, hooks=[fails]))


class Ends(unittest.TestCase):
    """Trainings that a hook or the loop ends: job.stop() and EarlyStopping."""

    def test_one_more_step_and_a_checkpoint(self):
        for devices, pipeline in ((None, "1f1b"), ("threads:1x2", "1f1b"), ("threads:1x2", "pipedream")):
            with self.subTest(devices=devices, pipeline=pipeline), tempfile.TemporaryDirectory() as folder, \
                    contextlib.redirect_stdout(io.StringIO()) as said:
                job = build(devices, pipeline, 1 if pipeline == "pipedream" else 4)
                list(job.run(steps=100, checkpoint=folder, drain=5 if pipeline == "pipedream" else None,
                             hooks=[lambda job, step: job.stop() if step.index == 4 else None]))
                self.assertEqual(job.step, 6 if pipeline == "1f1b" else 5)
                self.assertIn(f"Stopped as asked after {job.step} steps; saved in {folder}", said.getvalue())
                self.assertEqual(os.listdir(folder), [f"step-{job.step:08}"])
                self.assertEqual(len(losses(job, steps=2)), 2)  # the next run is a run of its own
                with self.assertRaisesRegex(ValueError, "job.stop.*: no training runs"):
                    job.stop()

    def test_early_stopping(self):
        """Epochs 0 to 5 have these measures. The run ends when `patience` of them in a row are no improvement."""
        for measures, options, best, steps in (
            ([5, 4, 4, 4, 9, 9], {"patience": 2}, (4, 1), 21),
            ([5, 4, 4.5, 3, 3, 2.5], {"patience": 2}, (2.5, 5), 30),
            ([5, 4, 4.5, 3, 3, 3], {"patience": 3, "least": 1.5}, (3, 3), 30),
            ([5, 4, 3.5, 3, 3, 3], {"patience": 1, "least": 1.5}, (5, 0), 11),
            ([1, 2, 2, 2, 9, 9], {"patience": 3, "mode": "max"}, (9, 4), 30),
            ([float("nan"), 2, float("nan"), 3, 3, 3], {"patience": 2}, (2, 1), 21),
        ):
            for devices in (None, "threads:1x2"):
                saved = []
                hook = ht.hooks.EarlyStopping(lambda job, epoch, measures=measures: measures[epoch.number], **options,
                                              on_best=lambda job, saved=saved: saved.append(job.step))
                with self.subTest(measures=measures, devices=devices), contextlib.redirect_stdout(io.StringIO()) as said:
                    job = build(devices)
                    list(job.run(steps=30, hooks=[hook]))
                    self.assertEqual((hook.best, hook.best_epoch), best)
                    self.assertEqual(job.step, steps)
                    self.assertEqual(saved[-1], 5 * (best[1] + 1))
                    self.assertEqual("EarlyStopping: no improvement in" in said.getvalue(), steps < 30)

    def test_what_is_refused(self):
        hook = ht.hooks.EarlyStopping
        for says, make in (
            ("EarlyStopping: measure is called with .job, epoch., but takes .job.", lambda: hook(lambda job: 1)),
            ("EarlyStopping: on_best is called with .job.", lambda: hook(lambda job, epoch: 1, on_best=lambda: 1)),
            ("mode must be min or max, patience a whole number", lambda: hook(lambda job, epoch: 1, patience=0)),
            ("measure must return a number, got a dict", lambda: list(build().run(steps=5, hooks=[hook(lambda *_: {})]))),
        ):
            with self.subTest(says), self.assertRaisesRegex(ValueError, rf"^loop_test\.py:\d+: .*{says}"):
                make()


class Logs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def steps_in(self, path):
        if path.suffix == ".csv":
            with path.open() as file:
                return [int(row["step"]) for row in csv.DictReader(file)]
        return [json.loads(line)["step"] for line in path.read_text().splitlines()]

    def test_each_step_once_after_a_resume(self):
        for name in ("log.csv", "log.jsonl"):
            path, saves = self.folder / name, str(self.folder / f"{name}.saved")
            for first, stops_at, until in ((True, 6, 20), (False, 7, 20), (False, None, 11)):
                job = build()
                for step in job.run(until=until, checkpoint=saves, every=2, resume=not first, hooks=[Log(str(path))]):
                    if step.index == stops_at:
                        break  # the last save is some steps before this one
                with path.open("a") as file:
                    file.write("3,0." if name == "log.csv" else '{"st')  # a line that a kill cut off
            whole = path.read_text()
            path.write_text(whole[:whole.rindex("\n") + 1])
            self.assertEqual(self.steps_in(path), list(range(11)), name)
            self.assertEqual(whole.count("samples_per_s"), 1 if name == "log.csv" else 11)

    def test_columns_of_another_run_are_refused(self):
        path = self.folder / "log.csv"
        path.write_text("step,other\n0,1\n1,2\n")
        job = build()
        list(job.run(steps=2))
        with self.assertRaisesRegex(ValueError, "its columns are step, other, but this run has step, loss, .*; give a"):
            list(job.run(steps=1, hooks=[Log(str(path))]))
        self.assertEqual(path.read_text(), "step,other\n0,1\n1,2\n")

    def test_a_run_that_begins_begins_its_file(self):
        for name in ("log.csv", "log.jsonl"):
            path = self.folder / name
            for _ in range(2):
                job = build()
                list(job.run(steps=3, hooks=[Log(str(path))]))
                list(job.run(steps=2, hooks=[Log(str(path))]))  # the same training continues
                self.assertEqual(self.steps_in(path), [0, 1, 2, 3, 4], name)

    def test_from_step_0_with_what_is_there(self):
        """A script that was killed before its first checkpoint resumes at step 0 and logs each step once."""
        for name in ("log.csv", "log.jsonl"):
            path = self.folder / name
            for _ in range(2):
                list(build().run(steps=3, hooks=[Log(str(path), goes_on=True)]))
            self.assertEqual(self.steps_in(path), [0, 1, 2], name)

    def test_tensorboard_has_points_of_steps_and_epochs(self):
        class Scores:
            def on_epoch(self, job, epoch):
                epoch.scalars["Validation/mine"] = float(epoch.number)

        job = build()
        list(job.run(steps=10, hooks=[Scores(), TensorBoard(self.folder, every=4, last=10)]))
        (path,) = self.folder.iterdir()
        found = scalars_of(path)
        self.assertEqual([n for n, tag, _ in found if tag == "Step/loss"], [4, 8, 10])
        self.assertEqual([(n, v) for n, tag, v in found if tag == "Validation/mine"], [(0, 0.0), (1, 1.0)])
        for tag in ("Step/learning_rate", "Step/gradient_norm", "Step/samples_per_s"):
            self.assertTrue(all(v > 0 for _, t, v in found if t == tag), tag)


class Page(unittest.TestCase):
    def test_its_lines_run(self):
        page = pathlib.Path(__file__).resolve().parents[3] / "docs" / "loop.md"
        code = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
        ht.new_graph()
        names = {}
        self.addCleanup(os.chdir, os.getcwd())
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            with contextlib.redirect_stdout(io.StringIO()) as said:
                exec(compile("\n".join(code), str(page), "exec"), names)
            self.assertEqual(len(pathlib.Path("run.csv").read_text().splitlines()), 21)
            self.assertEqual(len(list(pathlib.Path("runs/mine").iterdir())), 1)
        self.assertEqual((names["job"].step, names["slopes"]["v"].shape), (40, (2, 16)))
        np.testing.assert_array_equal(names["job"].weights()["w"], names["weights"]["w"] * 0.5)
        self.assertIn("160 parameters", said.getvalue())
        self.assertIn("<svg", names["picture"][:100])


class Trackers(unittest.TestCase):
    """The tracking examples, with stand-ins for the packages."""

    def module(self):
        path = pathlib.Path(__file__).resolve().parents[3] / "docs" / "examples" / "tracking.py"
        spec = importlib.util.spec_from_file_location("tracking", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def stand_in(self, name, **functions):
        before = sys.modules.get(name)
        sys.modules[name] = types.SimpleNamespace(**functions)
        self.addCleanup(lambda: sys.modules.pop(name) if before is None else sys.modules.update({name: before}))

    def test_wandb(self):
        told, logged, ended = [], [], []
        run = types.SimpleNamespace(log=lambda values, step: logged.append((step, values)), finish=lambda: ended.append(1))
        self.stand_in("wandb", init=lambda **settings: told.append(settings) or run)
        tracking = self.module()
        for devices in (None, "threads:1x2"):
            list(tracking.job_of(devices).run(steps=12, hooks=[tracking.Wandb(project="mine")]))
        self.assertEqual((told, len(ended)), ([{"project": "mine"}] * 2, 2))
        self.assertEqual([step for step, _ in logged], [*range(12)] * 2)
        self.assertLess(logged[11][1]["loss"], logged[0][1]["loss"])
        self.assertEqual(set(logged[0][1]), {"loss", "rate", "norm"})

    def test_mlflow(self):
        begun, logged, ended = [], [], []
        self.stand_in("mlflow", start_run=lambda **settings: begun.append(settings), end_run=lambda: ended.append(1),
                      log_metrics=lambda values, step: logged.append((step, values)))
        tracking = self.module()
        list(tracking.job_of().run(steps=12, hooks=[tracking.Mlflow(every=5)]))
        self.assertEqual((begun, [step for step, _ in logged], ended), ([{}], [0, 5, 10], [1]))


# A job that evaluates for hours at step 3, in a hook or in its loop. One worker then gets the stop signal.
EVALUATES = '''
import os, signal, sys, threading
import numpy as np
import hetu as ht
import loop_test

IN_A_HOOK, FOLDER, DEVICES = sys.argv[1] == "hook", sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None
batches = 0

class Rows:
    def __len__(self):
        return 10 ** 6
    def __getitem__(self, number):
        global batches
        batches = number
        if number == 20 and not DEVICES:
            os.kill(os.getpid(), signal.SIGUSR1)
        return {"x": np.ones((loop_test.BATCH, 3), np.float32), "y": np.ones(loop_test.BATCH, np.float32)}

job = loop_test.build(DEVICES, pipelines=int(DEVICES[5]) if DEVICES else 1)
endless = ht.data.Batches(Rows(), job.data.batch_size)

def evaluate(job, step):
    if step.index != 3:
        return
    if DEVICES and not job.is_chief:
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
    print("evaluated", job.evaluate(endless), flush=True)

for step in job.run(steps=1000, checkpoint=FOLDER, hooks=[evaluate] if IN_A_HOOK else []):
    if not IN_A_HOOK:
        evaluate(job, step)
print(job.step, sorted(name for name in os.listdir(FOLDER) if name.startswith("step-")), flush=True)
'''


class Stops(unittest.TestCase):
    """SIGUSR1 during an evaluation."""

    def check(self, where, start, *devices):
        path = os.pathsep.join([str(pathlib.Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([*start, sys.executable, "-c", EVALUATES, where, f"{folder}/saved", *devices],
                                  capture_output=True, text=True, timeout=100, env={**os.environ, "PYTHONPATH": path})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"Run 'validate' ended after \d+ batches, as asked")
        self.assertIn("Stopped as asked after 4 steps; saved in ", done.stdout)
        workers = 2 if start else 1
        self.assertEqual(done.stdout.count("4 ['step-00000004']"), workers, done.stdout)
        self.assertEqual(done.stdout.count("evaluated {"), 0 if where == "hook" else workers, done.stdout)

    def test_one_process(self):
        self.check("hook", [])
        self.check("loop", [])

    def test_two_processes(self):
        """The worker that gets the signal reads no data. Both workers end after the same batch."""
        self.check("hook", [*HETURUN, "-w", "2"], "pipe_1_2")
        self.check("loop", [*HETURUN, "-w", "2"], "pipe_2_1")


class Paces(unittest.TestCase):
    """Samples per second of runs without a flush, whose results arrive in bursts."""

    def test_bursts(self):
        now = [0.0]
        pace = Pace(lambda: now[0])
        found = []
        for step in range(40):
            now[0] += 4.0 if step % 4 == 0 else 1e-6  # four at a time: one per second
            found.append(8 / pace.seconds(8))
        for rate in found[Pace.SPAN:]:
            self.assertTrue(7 < rate < 9, found)

    def test_the_last_step(self):
        for pipeline in ("pipedream", "pipedream-2bw"):
            job = build("threads:1x2", pipeline, 1 if pipeline == "pipedream" else 4)
            rates = sorted(step.samples_per_s for step in job.run(steps=60))
            self.assertLess(rates[-1], 20 * rates[len(rates) // 2], (pipeline, rates))


class Threads(unittest.TestCase):
    """devices="threads:…": results equal those of one process, for each method."""

    def test_equal_to_one_process(self):
        alone = losses(build(), steps=6)
        for devices, pipeline in (("threads:1x2", "1f1b"), ("threads:1x4", "zb-h1"), ("threads:1x2", "zb-v")):
            self.assertEqual(losses(build(devices, pipeline), steps=6), alone, (devices, pipeline))
        for devices, pipeline in (("threads:2x2", "gpipe"), ("threads:1x4", "chimera")):
            for (_, found), (_, wanted) in zip(losses(build(devices, pipeline), steps=6), alone, strict=True):
                self.assertAlmostEqual(found, wanted, 5, (devices, pipeline))

    def test_saves_and_goes_on(self):
        with tempfile.TemporaryDirectory() as folder:
            whole = losses(build(), steps=6)
            self.assertEqual(losses(build("threads:1x4"), steps=2, checkpoint=folder), whole[:2])
            self.assertEqual(losses(build("threads:1x2"), steps=2, checkpoint=folder, resume=True), whole[2:4])
            self.assertEqual(losses(build(), steps=2, checkpoint=folder, resume=True), whole[4:])

    def test_what_is_refused(self):
        for devices, says in (("threads:2", "devices threads:2: expected threads:<pipelines>x<stages>, such as"),
                              ("threads:0x1", "expected threads:"), ("threads:1x9", "9 stages")):
            with self.subTest(devices), self.assertRaisesRegex(ValueError, says):
                build(devices, pipelines=1)

    def test_ctrl_c(self):
        """The first Ctrl-C saves and ends the run of all threads. At a prompt, the next run works again."""
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, "-c",
                 "import os, signal, sys\nimport loop_test\nsys.ps1 = '>>> '\n"
                 "job = loop_test.build('threads:1x2')\n"
                 "for step in job.run(steps=1000, checkpoint=sys.argv[1]):\n"
                 "    if step.index == 3: os.kill(os.getpid(), signal.SIGINT)\n"
                 "print(job.step, os.listdir(sys.argv[1]), len(list(job.run(steps=3))))\n", folder],
                capture_output=True, text=True, timeout=60, cwd=pathlib.Path(__file__).parent)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"SIGINT: ending after this step; the training saves in {folder}; a second SIGINT ends at once",
                      done.stderr)
        self.assertIn(f"Stopped as asked after 5 steps; saved in {folder}\n5 ['step-00000005'] 3\n", done.stdout)

    def test_a_loop_left_between_drains(self):
        """Leaving the loop between drains ends the job, as with processes. Leaving it where the pipeline is drained doesn't.
        """
        job = build("threads:1x2", "pipedream", 1)
        for step in job.run(steps=4):
            if step.last:
                break
        self.assertEqual([index for index, _ in losses(job, steps=2)], [4, 5])
        left = job.run(steps=50)
        next(left)
        left.close()
        with self.assertRaisesRegex(ValueError, "a run is in progress: 49 of its steps remain"):
            list(job.run(steps=1))


if __name__ == "__main__":
    unittest.main()

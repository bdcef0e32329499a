"""The layouts of an elastic job: the same micro-batches on any number of workers, with a plan for each."""
import inspect
import re
import unittest

from hetu import schedule
from hetu.compat.varuna import run_varuna
from hetu.launch import elastic, elastic_trainings
from hetu.launch.elastic_layout import Layout, LayoutError, best_layout, layout_of

COMMAND = ["python3", "train_bert.py", "--devices", "pipe_2_4", "--micro-batches", "4", "--batch-size", "16", "--checkpoint",
           "saved"]


class BestLayout(unittest.TestCase):
    def test_every_layout_trains_the_same_micro_batches_by_a_plan_that_exists(self):
        synchronous = [m["name"] for m in schedule.methods() if "steps" not in m["options"] and m["name"] != "dp"]
        for method in (*synchronous, ""):
            for pipelines, stages, micros in ((2, 4, 4), (1, 3, 5), (3, 2, 6), (1, 1, 1)):
                first = Layout(pipelines, stages, micros, 4 * micros, (), method)
                before = 0
                for workers in range(1, 14):
                    with self.subTest(method=method, first=first, workers=workers):
                        layout = best_layout(first, workers)
                        shares = layout.shares or (layout.micro_batches,) * layout.pipelines
                        self.assertLessEqual(layout.workers, workers)
                        self.assertEqual(sum(shares), pipelines * micros)
                        self.assertEqual(len(shares), layout.pipelines)
                        self.assertEqual(layout.batch_size, 4 * layout.micro_batches)
                        self.assertLessEqual(layout.stages, stages)
                        self.assertLessEqual(max(shares) - min(shares), 1 if method else 0)
                        for micro_batches in set(shares):
                            schedule.generate(layout.method or "gpipe", stages=layout.stages, micro_batches=micro_batches)
                        if method in ("", "1f1b"):
                            self.assertEqual(layout.stages, min(stages, workers))
                            if workers == first.workers:  # no worse than what the user gave
                                self.assertEqual(layout.workers, workers)
                        if method == "1f1b":  # it takes any number, so more workers never give fewer
                            self.assertGreaterEqual(layout.workers, before)
                        before = layout.workers

    def test_the_named_layouts(self):
        first = Layout(2, 4, 4, 16, (), "1f1b")
        self.assertEqual(str(best_layout(first, 12)), "3 pipelines x 4 stages with 3 + 3 + 2 micro-batches")
        self.assertEqual(best_layout(first, 12).flags(), [
            "--devices", "pipe_3_4", "--micro-batches", "3", "--batch-size", "12", "--shares", "3,3,2",
            "--pipeline", "1f1b"])
        self.assertEqual(str(best_layout(first._replace(method=""), 12)), "2 pipelines x 4 stages")
        self.assertEqual(best_layout(first._replace(method="chimera"), 3).stages, 2)  # it has no plan for 3 stages
        self.assertEqual(best_layout(first._replace(method="chimera"), 1), Layout(1, 1, 8, 32, (), "1f1b"))
        self.assertIsNone(best_layout(first, 0))

    def test_trainings_that_need_equal_pipelines(self):
        self.assertEqual(layout_of([*COMMAND, "--pipeline", "zb-v"]), Layout(2, 4, 4, 16, (), "zb-v"))
        for more in (["--trace", "t.json"], ["--optimizer", "kfac"], ["--chunks", "2"], ["--tables", "server"]):
            self.assertEqual(layout_of([*COMMAND, "--pipeline", "1f1b", *more]).method, "", more)
        self.assertEqual(layout_of([*COMMAND, "--pipeline", "plan.csv"]).method, "")
        with self.assertRaisesRegex(LayoutError, "leave out --shares"):
            layout_of([*COMMAND, "--pipeline", "1f1b", "--shares", "3,5"])


class Trainings(unittest.TestCase):
    def test_each_kind_has_what_elastic_calls(self):
        """A kind that lacks a method would end a job at its first lost worker."""
        called = set(re.findall(r"\btraining\.([a-z_]+)\(", inspect.getsource(elastic)))
        self.assertGreaterEqual(called, {"command", "environment", "saved_step", "continuation", "fault"})
        for kind in (elastic_trainings.FlagTraining, elastic_trainings.LayoutTraining, run_varuna.ScriptTraining):
            self.assertEqual([name for name in sorted(called) if not hasattr(kind, name)], [], kind)


if __name__ == "__main__":
    unittest.main()

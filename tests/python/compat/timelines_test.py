"""Chimera's and PipeFisher's timeline files: labels, kept steps and intervals of a small trace, and what hetu fill reads."""
import contextlib
import io
import json
import pathlib
import pickle
import subprocess
import tempfile
import unittest

from hetu.compat import timelines

STEP_US = 1000
# Worker 0 of 2 in Chimera: its stage 0 goes down, its stage 1 (id 3) goes up. Starts and durations in us.
AFTER = [("F", 0, 0, 0, 10, 5), ("F", 3, 1, 0, 20, 5), ("B", 3, 1, 0, 30, 10), ("B", 0, 0, 0, 50, 10),
         ("SEND_F", 0, 0, 0, 15, 1), ("CURVATURE_A", 0, 0, 4, 70, 6), ("CURVATURE_A", 0, 1, 4, 80, 8),
         ("CURVATURE_B", 3, 1, 4, 90, 4), ("SYNC_A", 0, -1, 4, 100, 50), ("SYNC_B", 3, -1, 4, 101, 59),
         ("SYNC_A", 0, -1, 5, 102, 30), ("INVERT_A", 0, -1, 4, 170, 7), ("REDUCE_GRAD", 0, -1, 0, 60, 25),
         ("GATHER", 0, -1, 4, 180, 9), ("PRECONDITION", 0, -1, 0, 190, 20), ("UPDATE", 0, -1, 0, 215, 5)]
NS = 1000


def chimera_trace(of_step, workers=2, steps=5):
    """Returns a trace in which every worker has the events of `of_step` in each step."""
    places = [{"id": 2 * replica + stage, "model_stage": stage, "replica": replica,
               "workers": [stage if replica == 0 else 1 - stage]} for replica in (0, 1) for stage in (0, 1)]
    events = [{"args": {"name": name}, "name": "process_name", "ph": "M", "pid": pid, "tid": 0}
              for pid, name in ((0, "predicted"), (1, "measured"))]
    for step in range(steps):
        for worker in range(workers):
            for kind, stage, micro, part, start, duration in of_step:
                events += [{"args": {"kind": kind, "stage": stage, "micro": micro, "part": part, "step": step}, "cat": kind,
                            "name": kind, "ph": "X", "pid": pid, "tid": worker, "ts": float(step * STEP_US + start + late),
                            "dur": float(duration)} for pid, late in ((1, worker), (0, 500))]
    return {"metadata": {"plan": {"method": "chimera", "placements": places}}, "traceEvents": events[::-1]}


class Timelines(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.trace = self.folder / "run.json"

    def nodes(self, trace):
        self.trace.write_text(json.dumps(trace))
        paths = timelines.write(self.trace)
        return [pickle.loads(path.read_bytes()) for path in paths]

    def of_step(self, intervals, step):
        """Returns the intervals of a list's step in us from the start of the step."""
        share = len(intervals) // timelines.KEPT
        kept = intervals[(step - 2) * share:(step - 1) * share]
        return [tuple((at - step * STEP_US * NS) / NS for at in interval) for interval in kept]

    def test_a_step_has_the_originals_labels(self):
        first, second = self.nodes(chimera_trace(AFTER))
        expected = {
            "start_end": [(10, 220)], "call_pipeline": [(10, 85)], "one_ngd_step": [(10, 220)],
            "call_forward": [(10, 15)], "call_forward:up_pipe": [(20, 25)],
            "call_backward": [(50, 60)], "call_backward:up_pipe": [(30, 40)], "sync_grad": [(60, 85)],
            "cov_kron_A:stage0.factor4": [(70, 84)],  # both micro-batches
            "cov_kron_B:stage1.factor4:up_pipe": [(90, 94)],
            # Sums that overlap take the link in turn.
            "sync_kron_A:stage0.factor4": [(100, 150)], "sync_kron_B:stage1.factor4:up_pipe": [(150, 160)],
            "sync_kron_A:stage0.factor5": [(160, 160)],
            "inv_kron_A:stage0.factor4": [(170, 177)], "gather_inverses": [(180, 189)], "precondition": [(190, 210)],
        }
        self.assertEqual(set(first), set(expected))
        for step in (2, 3, 4):  # of 0 to 4, the last three are kept
            for label, intervals in expected.items():
                self.assertEqual(len(first[label]), timelines.KEPT, label)
                self.assertEqual(self.of_step(first[label], step), intervals, label)
                self.assertEqual(self.of_step(second[label], step), [(a + 1, b + 1) for a, b in intervals], label)
        self.assertTrue(all(type(at) is int for list_ in first.values() for pair in list_ for at in pair))

    def test_work_in_the_bubbles_has_plain_labels(self):
        inside = [(*event[:4], 5, event[5]) if event[0] == "CURVATURE_A" else event for event in AFTER]
        node = self.nodes(chimera_trace(inside))[0]
        self.assertEqual({label for label in node if "kron" in label},
                         {"cov_kron_A", "cov_kron_B:up_pipe", "sync_kron_A", "sync_kron_B:up_pipe", "inv_kron_A"})
        self.assertEqual(len(node["cov_kron_A"]), 2 * timelines.KEPT)  # a piece for each micro-batch

    def test_fill_reads_the_files(self):
        self.nodes(chimera_trace(AFTER))
        done = subprocess.run(["hetu", "fill", self.folder / "run_node0_timeline.pickle",
                               self.folder / "run_node1_timeline.pickle", "--print_workloads"],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"node0:\d pipeline iterations")
        self.assertIn("cov_kron_A:stage0.factor4 ", done.stdout)
        self.assertRegex(done.stdout, r"call_forward 0 5000 5000\n")

    def test_the_command_names_its_files(self):
        self.trace.write_text(json.dumps(chimera_trace(AFTER)))
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            timelines.main([str(self.trace), "-o", str(self.folder / "other")])
        self.assertEqual(said.getvalue().splitlines(),
                         [str(self.folder / f"other_node{node}_timeline.pickle") for node in (0, 1)])

    def test_other_files_are_refused(self):
        trace = chimera_trace(AFTER)
        predicted = [event for event in trace["traceEvents"] if event["pid"] == 0]
        for text, message in (("no", "run.json:1: not JSON"), ("{}", "run.json: expected the trace of a run"),
                              (json.dumps({**trace, "traceEvents": predicted}), "has no measured events")):
            self.trace.write_text(text)
            with self.assertRaisesRegex(ValueError, message):
                timelines.write(self.trace)


if __name__ == "__main__":
    unittest.main(verbosity=2)

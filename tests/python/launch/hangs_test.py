"""Hung trainings: the reports of workers (hetu/process/watch.py), and the decisions of heturun (hetu/launch/hangs.py)."""
import unittest

from hetu.launch.hangs import PAUSE_S, TIMES, Hangs
from hetu.process.watch import Watch

LIMIT_S = 30.0


def beat(step, phase="step", at="0RECV_F0 (stage 0, micro-batch 0, step 7)", slowest_s=0.5):
    return {"step": step, "phase": phase, "at": at, "slowest_s": slowest_s}


class Item:
    """A worker or a part."""

    def __init__(self, **members):
        vars(self).update(members)


class Job:
    """Workers of one part, whose reports arrive once a second."""

    def __init__(self, workers, limit_s=LIMIT_S):
        self.part = Item()
        self.part.workers = [Item(part=self.part, code=None, stopped=False, describe=lambda n=n: f"worker {n}")
                             for n in range(workers)]
        self.hangs, self.now = Hangs(limit_s), 100.0

    def pass_time(self, seconds, beats):
        """Returns the lines and decisions of some seconds, in which worker n sends beats[n] once a second; None: nothing."""
        found = []
        for _ in range(int(seconds)):
            self.now += 1.0
            for worker, one in zip(self.part.workers, beats, strict=True):
                if one is not None:
                    self.hangs.take(worker, one, self.now)
            found += [(text, must_end) for _, text, must_end in self.hangs.look([self.part], self.now)]
        return found


class Decisions(unittest.TestCase):
    def test_ends_a_training_without_progress_after_a_warning(self):
        job = Job(2)
        self.assertEqual(job.pass_time(5, [beat(6), beat(6)]), [])
        limit = LIMIT_S + TIMES * 0.5
        blocked = beat(7, at="1F2 (stage 1, micro-batch 2, step 7)")
        found = job.pass_time(limit + 1, [beat(7), blocked])
        self.assertEqual([must_end for _, must_end in found], [False, True])
        self.assertEqual(found[0][0],
                         "worker 1 makes no progress: it has been in step 7, at 1F2 (stage 1, micro-batch 2, step 7) for 18 "
                         "s, and the others wait for it; the slowest of the last steps took 0.5 s; it is ended after 35 s "
                         "(--hang-limit 30)")
        self.assertIn("for 35 s, and the others wait for it; the slowest of the last steps took 0.5 s", found[1][0])

    def test_names_the_worker_that_is_behind(self):
        cases = (([beat(7), beat(7), beat(7, "between", "")], "worker 2 makes no progress: it has been in its script before "
                                                             "step 7 for 35 s, and others wait in that step"),
                 ([beat(7), beat(9), beat(8)], "worker 0 makes no progress: it has been in step 7, at 0RECV_F0 (stage 0, "
                                               "micro-batch 0, step 7) for 35 s, 2 steps behind"),
                 ([beat(7), beat(7), beat(7)], "no worker makes progress: all 3 have been in step 7"),
                 ([beat(7, "between", "")] * 3, "no worker makes progress: all 3 have been in its script before step 7"))
        for beats, says in cases:
            job = Job(3)
            found = job.pass_time(36, beats)
            self.assertEqual(len(found), 2, found)
            self.assertIn(says, found[1][0])
        job = Job(3)
        job.pass_time(1, [beat(7)] * 3)
        text, must_end = job.pass_time(40, [beat(7), None, beat(7)])[1]
        self.assertTrue(must_end)
        self.assertIn("worker 1 makes no progress: it has sent no report for 35 s, the last one in step 7", text)

    def test_waits_for_healthy_trainings(self):
        """The first step, saves, evaluations and what is outside of the training may take any time, and so may steps whose
        instructions go on."""
        for phase in ("starts", "saves", "evaluates", "over"):
            job = Job(2)
            self.assertEqual(job.pass_time(300, [beat(7, phase, ""), beat(7)]), [], phase)
        job = Job(2)
        self.assertEqual(job.pass_time(300, [beat(7), None]), [], "a worker that has not reported yet")
        for micro in range(20):
            moving = beat(7, at=f"1F{micro} (stage 1, micro-batch {micro}, step 7)")
            self.assertEqual(job.pass_time(15, [beat(7), moving]), [])
        job = Job(2)
        self.assertEqual(job.pass_time(140, [beat(7, slowest_s=25)] * 2), [])  # half of 30 + 250
        job = Job(2, 0.0)
        self.assertEqual(job.pass_time(300, [beat(7)] * 2), [], "--hang-limit 0")

    def test_judges_stopped_workers_at_any_time(self):
        """A worker that is stopped before its first report, or in a save, may be one that no other worker waits for."""
        for beats in ([None], [beat(7, "saves", "")], [None, beat(7, "between", "")], [beat(7, "starts", ""), beat(7)]):
            job = Job(len(beats))
            self.assertEqual(job.pass_time(300, beats), [])
            job.part.workers[0].stopped = True
            found = job.pass_time(LIMIT_S + TIMES * 0.5 + 1, beats)
            self.assertEqual([must_end for _, must_end in found][:2], [False, True])
            self.assertRegex(found[0][0], r"^worker 0 makes no progress: a signal such as SIGSTOP has stopped it; no worker "
                                          r"has moved for 1\d s; the slowest of the last steps took [0-9.]+ s; it is ended ")
        job = Job(2)
        job.part.workers[0].stopped = True
        self.assertEqual(job.pass_time(17, [None, beat(7)]), [])
        job.part.workers[0].stopped = False
        self.assertEqual(job.pass_time(300, [None, beat(7)]), [], "it runs again")

    def test_starts_again_after_a_pause_of_heturun_itself(self):
        job = Job(2)
        job.pass_time(30, [beat(7)] * 2)
        job.now += PAUSE_S + 300
        self.assertEqual(job.pass_time(17, [beat(7)] * 2), [])
        self.assertEqual(len(job.pass_time(19, [beat(7)] * 2)), 2)


class Reports(unittest.TestCase):
    def setUp(self):
        self.now = 0.0
        self.watch = Watch(lambda: "0F3", lambda: 7.25, clock=lambda: self.now)

    def reported(self):
        beat = self.watch.report()["beat"]
        self.assertEqual(beat["work_s"], 7.25)
        return tuple(beat[name] for name in ("step", "phase", "at", "slowest_s"))

    def step(self, number, seconds):
        steps = number
        with self.watch.step(lambda: steps, 1):
            self.now += seconds
            steps += 1
            said = self.reported()
        return said

    def test_phases_and_times_of_a_training(self):
        self.assertEqual(self.reported(), (0, "over", "", 0.0))
        with self.watch.training():
            self.assertEqual(self.step(5, 100.0), (5, "starts", "", 0.0))  # the first step doesn't count
            self.assertEqual(self.reported(), (6, "between", "", 0.0))
            self.now += 1.0
            self.assertEqual(self.step(6, 2.0), (6, "step", "0F3", 0.0))
            self.assertEqual(self.reported(), (7, "between", "", 3.0))
            with self.watch.step(lambda: 7, 1):  # a call that makes no step; its time belongs to the next one
                self.now += 1.0
            self.assertEqual(self.reported(), (7, "between", "", 3.0))
            with self.watch.during("saves"):
                self.now += 50.0
                self.assertEqual(self.reported(), (7, "saves", "", 3.0))
            self.step(7, 4.0)
            self.assertEqual(self.reported(), (8, "between", "", 5.0))
            for number in range(8, 108):
                self.step(number, 1.0)
            self.assertEqual(self.reported(), (108, "between", "", 1.0))  # steps of long ago don't count
        self.assertEqual(self.reported(), (108, "over", "", 1.0))

    def test_steps_outside_of_a_training(self):
        self.step(0, 5.0)
        self.step(1, 5.0)
        self.assertEqual(self.reported()[1], "over")


if __name__ == "__main__":
    unittest.main()

"""Names workers that became slow, while the job runs (heturun --slow-limit).

Each worker reports once a second how many seconds it has computed, without its waits for messages, and how many steps it has
done (hetu/process/watch.py). The mean seconds per step over the last few steps are compared with those of the workers that
have the same stages in other pipelines: with their median. In a job of one pipeline they are compared with the worker's own
steps before: with the median of its earlier means.

Example, --slow-limit 1.3: three pipelines whose first workers compute 0.20, 0.21 and 0.29 s per step. The third one takes
1.41 times the median of the others (0.205), so it is named. It is named as slow until it takes less than 1.15 times.

A mean covers at least STEPS steps and LEAST_S seconds, so that one interrupted step names nobody. The first steps of a
worker don't count, and neither does a mean with a save or an evaluation in it."""
import collections
import statistics

LIMIT = 1.25  # the default of --slow-limit
STEPS = 5
LEAST_S = 5.0
WARM_STEPS = 3  # first steps, which are slower: memory is touched for the first time
UNJUDGED = ("starts", "saves", "evaluates")
EARLIER = 3  # means of a worker before its own past counts
MOST_EARLIER = 50


class Pace:
    """The reports of one worker."""

    def __init__(self):
        self.row = 0
        self.first = None  # the step of the first report
        self.reports = collections.deque()  # (time, steps done, seconds of compute) of the current mean
        self.mean = None  # seconds of compute per step, over the last steps
        self.usual = None  # seconds that a step should take, when the mean was judged
        self.means = collections.deque(maxlen=MOST_EARLIER)  # earlier means, none of which overlap
        self.is_slow = False
        self._counted = 0  # the step at which the last one of `means` ends

    def take(self, beat, now):
        """Takes a report. Returns true if there is a new mean."""
        self.row = beat["row"]
        if self.first is None:
            self.first = beat["step"]
        reports = self.reports
        if beat["phase"] in UNJUDGED or beat["step"] < self.first + WARM_STEPS or (
                reports and (beat["step"] < reports[-1][1] or beat["work_s"] < reports[-1][2])):  # another training
            reports.clear()
            return False
        reports.append((now, beat["step"], beat["work_s"]))
        while len(reports) > 2 and _is_enough(reports[1], reports[-1]):
            reports.popleft()
        if not _is_enough(reports[0], reports[-1]):
            return False
        self.mean = (reports[-1][2] - reports[0][2]) / (reports[-1][1] - reports[0][1])
        return True

    def keep(self):
        """Adds the mean to the earlier ones, if it doesn't overlap with the last of them."""
        if self.reports[0][1] >= self._counted:
            self.means.append(self.mean)
            self._counted = self.reports[-1][1]


def _is_enough(first, last):
    return last[1] - first[1] >= STEPS and last[0] - first[0] >= LEAST_S


class Slow:
    """The pace of all workers. `limit`: a worker is slow if it takes this many times what it should; 0: none is judged."""

    def __init__(self, limit):
        self.limit = limit
        self.least = 1 + (limit - 1) / 2  # below it a slow worker is no longer slow
        self.paces = {}

    def take(self, worker, beat, now):
        """Takes a report of a worker. Returns a line to say, or ""."""
        if self.limit <= 0 or "work_s" not in beat:
            return ""
        pace = self.paces.setdefault(worker, Pace())
        if not pace.take(beat, now) or not pace.mean:
            return ""
        usual, of_whom = self._usual(worker, pace)
        pace.usual = usual
        if not pace.is_slow:  # the past of a slow worker isn't what it should take
            pace.keep()
        if not usual:
            return ""
        times = pace.mean / usual
        if not pace.is_slow and times >= self.limit:
            pace.is_slow = True
            return (f"{worker.describe()} is slow: it computes {seconds(pace.mean)} per step, {times:.3g} times {of_whom} "
                    f"({seconds(usual)}); the others wait for it (--slow-limit {self.limit:g})")
        if pace.is_slow and times < self.least:
            pace.is_slow = False
            return f"{worker.describe()} is no longer slow: it computes {seconds(pace.mean)} per step"
        return ""

    def _usual(self, worker, pace):
        """Returns what a step should take, and words for it; None if that is unknown."""
        others = [other.mean for who, other in self.paces.items()
                  if who is not worker and who.code is None and other.row == pace.row and other.mean and not other.is_slow]
        if others:
            return statistics.median(others), "what the workers with the same stages take" if len(others) > 1 else (
                "what the other worker with the same stages takes")
        if len(pace.means) < EARLIER:
            return None, ""
        return statistics.median(pace.means), "what it took before"

    def is_slow(self, worker):
        return worker in self.paces and self.paces[worker].is_slow

    def mean(self, worker):
        """Returns the worker's seconds of compute per step, or None."""
        return self.paces[worker].mean if worker in self.paces else None

    def usual(self, worker):
        """Returns the seconds per step with which the worker's mean was compared, or None."""
        return self.paces[worker].usual if worker in self.paces else None


def seconds(value):
    """Returns a time as text."""
    return f"{1e3 * value:.3g} ms" if value < 1 else f"{value:.3g} s"

"""The course of a training in its run folder: progress.jsonl, a line per point, for the curve of `heturun watch`.

    {"step": 120, "loss": 2.31, "samples_per_s": 812.0, "time": 1796071676.6}

The loss is null if it isn't a number, and left out if the script reports none. The file stays small, however long the job
runs: a point is kept if the one before is older than 1/DENSITY of the job's time so far. With ten records per second, which
a script sends at most, these are all records of the first 17 minutes, and one per minute after a week. The file then has
about 75,000 lines. Steps that take longer than that are all in it.

A training that goes back to a checkpoint does some steps again. Their first points stay in the file; a reader drops them.
"""
import bisect
import json
import math
import os

HISTORY = "progress.jsonl"
DENSITY = 10_000


class Points:
    """Chooses the points of one job that are kept. `take` and `lines` are called by heturun."""

    def __init__(self):
        self._began = self._kept_at = None
        self._left_out = None  # the newest record, if it wasn't kept
        self._lines = []

    def take(self, record, now, time_of):
        """Takes a record of progress at the time `now` of a steady clock, which is `time_of` in seconds since 1970."""
        point = {"step": record.get("step")}
        for name in ("loss", "samples_per_s"):
            if (value := record.get(name)) is not None:
                point[name] = value if math.isfinite(value) else None
        point["time"] = round(time_of, 3)
        if self._began is None:
            self._began = now
        elif now - self._kept_at < (now - self._began) / DENSITY:
            self._left_out = point
            return
        self._keep(point)
        self._kept_at = now

    def _keep(self, point):
        self._left_out = None
        self._lines.append(json.dumps(point) + "\n")

    def lines(self, is_end=False):
        """Returns the new lines of the file. At the end of a job, the last record is one of them."""
        if is_end and self._left_out:
            self._keep(self._left_out)
        text, self._lines = "".join(self._lines), []
        return text.encode()


class Course:
    """Reads progress.jsonl while it grows. `steps` ascend. In `losses`, a missing one is None, and one that isn't a number
    is NaN."""

    MOST_BYTES = 8 << 20  # that one call of update() reads

    def __init__(self, path):
        self._path = path
        self._at = 0
        self._identity = None
        self.clear()

    def clear(self):
        self.steps, self.losses = [], []

    def update(self):
        """Reads the new lines. A line that is still being written is left for the next call. A file that was replaced, or
        that became shorter, is read from its beginning."""
        try:
            with open(self._path, "rb") as file:
                found = os.fstat(file.fileno())
                identity = found.st_dev, found.st_ino
                if identity != self._identity or found.st_size < self._at:
                    self._identity, self._at = identity, 0
                    self.clear()
                while self._at < found.st_size:
                    file.seek(self._at)
                    data = file.read(self.MOST_BYTES)
                    end = data.rfind(b"\n") + 1
                    for line in data[:end].splitlines():
                        self._add(line)
                    self._at += end
                    if not end:
                        return
        except FileNotFoundError:
            self.clear()

    def _add(self, line):
        try:
            point = json.loads(line)
            step, loss = point["step"], point.get("loss", "")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return  # a full disk cut this line, and a later job went on in the file
        if not isinstance(step, int):
            return
        loss = math.nan if loss is None else float(loss) if isinstance(loss, (int, float)) else None
        if self.steps and step <= self.steps[-1]:
            first = bisect.bisect_left(self.steps, step)
            del self.steps[first:], self.losses[first:]
        self.steps.append(step)
        self.losses.append(loss)

    def thinned(self, most):
        """Returns at most `most` groups of neighbouring points with about as many steps each, as [first step, last step,
        least, mean, most loss]. The losses are None in a group without a number. Each point is a group of its own if there
        are at most `most`."""
        steps, losses = self.steps, self.losses
        if len(steps) <= most:
            values = [loss if loss is not None and math.isfinite(loss) else None for loss in losses]
            return [[step, step, loss, loss, loss] for step, loss in zip(steps, values, strict=True)]
        width = (steps[-1] - steps[0] + 1) / most
        groups, begin = [], 0
        for number in range(1, most + 1):
            end = len(steps) if number == most else bisect.bisect_left(steps, steps[0] + number * width, begin)
            if end > begin:
                there = [loss for loss in losses[begin:end] if loss is not None and math.isfinite(loss)]
                values = [min(there), math.fsum(there) / len(there), max(there)] if there else [None] * 3
                groups.append([steps[begin], steps[end - 1], *values])
            begin = end
        return groups

    def not_numbers(self):
        """Returns [first step, last step, count] of the losses that aren't numbers, or None if all are."""
        found = [step for step, loss in zip(self.steps, self.losses, strict=True)
                 if loss is not None and not math.isfinite(loss)]
        return [found[0], found[-1], len(found)] if found else None

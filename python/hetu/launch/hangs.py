"""Finds trainings that make no progress although all of their workers live (heturun --hang-limit).

Each worker reports its position once a second (hetu/process/watch.py). A part of the job hangs if the position of no worker
has changed for the limit. The limit follows the job: the seconds of --hang-limit, plus TIMES the slowest of the last steps.
A part isn't judged before the end of its first step, or while a worker saves, evaluates or is outside of its training. If a
signal has stopped one of its workers, as the guard reports, it is judged at any time, also if this worker has sent no report
yet: nobody else may be waiting for it."""
import re

TIMES = 10.0
SILENT_S = 5.0  # a worker without a report for this time is stopped, or its interpreter is blocked
PAUSE_S = 5.0  # heturun that has not looked for this time was itself stopped, so it starts again
JUDGED = ("step", "between")
COMPUTES = re.compile(r"\d+[A-Z]+\d+ \(")  # an instruction that waits for no other worker, such as 0F3 (stage 0, …)


class Hangs:
    """The reports of all workers. `limit_s`: the seconds of --hang-limit; 0: nothing is judged."""

    def __init__(self, limit_s):
        self.limit_s = limit_s
        self._beats = {}  # {worker: (report, time of its arrival)}
        self._moved = {}  # {part: time of the last change of a worker's position}
        self._warned = set()  # parts that were warned since then
        self._looked = None

    def take(self, worker, beat, now):
        """Takes a report of a worker."""
        before = self._beats.get(worker)
        self._beats[worker] = beat, now
        if before is None or _place(before[0]) != _place(beat):
            self._restart(worker.part, now)

    def _restart(self, part, now):
        self._moved[part] = now
        self._warned.discard(part)

    def look(self, parts, now):
        """Returns [(part, text, whether it must end)] for the parts that hang for half of their limit, once, and for all of
        it. Call it about once a second."""
        if self.limit_s <= 0:
            return []
        if self._looked is None or now - self._looked > PAUSE_S:
            for part in parts:
                self._restart(part, now)
            self._beats = {worker: (beat, now) for worker, (beat, _) in self._beats.items()}
        self._looked = now
        found = []
        for part in parts:
            workers = [worker for worker in part.workers if worker.code is None]
            beats = [self._beats[worker][0] for worker in workers if worker in self._beats]
            is_judged = len(beats) == len(part.workers) and all(beat["phase"] in JUDGED for beat in beats)
            if not is_judged and not any(worker.stopped for worker in workers):
                self._restart(part, now)
                continue
            slowest = max((beat["slowest_s"] for beat in beats), default=0.0)
            limit, since = self.limit_s + TIMES * slowest, now - self._moved[part]
            if since >= limit or (since >= limit / 2 and part not in self._warned):
                self._warned.add(part)
                steps = f"the slowest of the last steps took {slowest:.3g} s"
                ends = "" if since >= limit else f"; it is ended after {limit:.3g} s (--hang-limit {self.limit_s:g})"
                found.append((part, f"{self._blame(workers, now)}; {steps}{ends}", since >= limit))
        return found

    def _blame(self, workers, now):
        """Describes the workers that hold up the others, as far as the reports show it."""
        since = now - self._moved[workers[0].part]
        if stopped := [worker for worker in workers if worker.stopped]:
            more = f" (and {len(stopped) - 1} more)" if len(stopped) > 1 else ""
            return (f"{stopped[0].describe()}{more} makes no progress: a signal such as SIGSTOP has stopped it; no worker "
                    f"has moved for {since:.0f} s")
        blamed = self._behind(workers, now)
        if not blamed:
            where = _where(self._beats[workers[0]][0])
            return f"no worker makes progress: all {len(workers)} have been {where} for {since:.0f} s"
        beat, came = self._beats[blamed[0]]
        more = f" (and {len(blamed) - 1} more)" if len(blamed) > 1 else ""
        if now - came > SILENT_S:
            state = f"it has sent no report for {now - came:.0f} s, the last one {_where(beat)}"
        else:
            state = f"it has been {_where(beat)} for {since:.0f} s"
        return f"{blamed[0].describe()}{more} makes no progress: {state}{self._lag(beat, workers, blamed)}"

    def _lag(self, beat, workers, blamed):
        """Describes how far the blamed workers are behind the furthest one."""
        furthest = max(_rank(self._beats[worker][0]) for worker in workers)
        steps = furthest[0] - beat["step"]
        if steps:
            return f", {steps} step{'s' * (steps > 1)} behind the furthest worker"
        if furthest > _rank(beat):
            return ", and others wait in that step"
        return ", and the others wait for it" if len(blamed) < len(workers) else ""

    def _behind(self, workers, now):
        """Returns the workers that the others wait for, or [] if that is unknown. In this order: workers without reports;
        those whose position is behind; those that compute while the others wait for messages."""
        silent = [worker for worker in workers if now - self._beats[worker][1] > SILENT_S]
        if silent:
            return silent
        ranks = {worker: _rank(self._beats[worker][0]) for worker in workers}
        least = min(ranks.values())
        behind = [worker for worker in workers if ranks[worker] == least]
        if len(behind) < len(workers) or len(workers) == 1:
            return behind
        computing = [worker for worker in workers if COMPUTES.match(self._beats[worker][0]["at"])]
        return computing if len(computing) < len(workers) else []


def _place(beat):
    return beat["step"], beat["phase"], beat["at"]


def _rank(beat):
    """Returns a value that orders positions: between steps comes before the step."""
    return beat["step"], beat["phase"] == "step"


def _where(beat):
    """Returns a position as text."""
    if beat["phase"] == "between":
        return f"in its script before step {beat['step']}"
    at = f", at {beat['at']}" if beat["at"] not in ("", "nothing") else ""
    return f"in step {beat['step']}{at}"

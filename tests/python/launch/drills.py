"""Draws faults for elastic jobs, runs these jobs, and checks that they end as if nothing had happened. reliability_test.py
uses it."""
import dataclasses
import fcntl
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid

from hetu.drill import Fault, text_of
from hetu.launch import folders
from processes import processes_with, wait_until
from train_cases import HETURUN, MANY_S, MODEL, TRAIN, write_shards

HETU = str(pathlib.Path(os.environ["HETU_BUILD_DIR"], "bin", "hetu"))
WORKER = pathlib.Path(__file__).resolve().parent / "drill_rounds.py"
STEPS, EVERY = 24, 6
METHODS = {"graph": ("1f1b", "gpipe", "zb-h1", "chimera"), "torch": ("1f1b", "gpipe", "zb-h1")}
LAYOUTS = ((1, 2), (2, 1), (1, 1), (1, 3))  # pipelines, stages; all have 4 micro-batches
MOMENTS = ("start", "first step", "middle", "save", "recovery", "two at once", "change of the list", "evaluation")
HANG_S = 5  # --hang-limit of jobs with a hang or stop
TIMEOUT_S = 60  # HETU_TIMEOUT: a hang in a start or save ends the round after this time
MOST_VAIN = 2  # rounds in a row that fail before a new checkpoint; the third would end the job
JOB_S = 4 * MANY_S


@dataclasses.dataclass
class Drill:
    """A job and its faults. `changes`: {round: workers from then on}, written into the list of machines in that round.
    `moments`: the drawn moments, for the report."""
    front: str
    method: str
    layout: tuple
    faults: list = dataclasses.field(default_factory=list)
    changes: dict = dataclasses.field(default_factory=dict)
    moments: list = dataclasses.field(default_factory=list)

    def __str__(self):
        changes = "".join(f", {workers} workers from round {number} on" for number, workers in self.changes.items())
        return f"{self.front} {self.method} {self.layout[0]}x{self.layout[1]}{changes}: {text_of(self.faults)}"


class Draw:
    """Draws drills. `slow`: also faults that are noticed by a limit of time only (hangs, and stops in a start or save)."""

    def __init__(self, random, slow):
        self.random, self.slow = random, slow

    def kind(self, *kinds):
        return self.random.choice([kind for kind in kinds if self.slow or kind not in ("hang", "stop")])

    def drill(self, most, front=None):
        """Returns a drill of up to `most` faults and changes of the list."""
        front = front or self.random.choice(["graph", "graph", "torch"])
        methods = METHODS[front][:None if self.slow else 2] if front == "torch" else METHODS[front]
        drill = Drill(front, self.random.choice(methods), self.random.choice(LAYOUTS))
        if drill.method == "chimera" and drill.layout[1] % 2:
            drill.layout = (1, 2)
        self.workers = drill.layout[0] * drill.layout[1]
        self.saved = self.vain = 0
        number = 1
        while len(drill.faults) + len(drill.changes) < most and self.saved < STEPS:
            moment = self.random.choice(MOMENTS)
            if self.event(drill, number, moment):
                drill.moments.append(moment)
                number += 1
        return drill

    def fault(self, drill, number, kind, worker=None, **moment):
        seconds = moment.pop("seconds", 0.0)
        if kind == "delay":
            seconds = round(self.random.uniform(0.5, 2.0), 3)
        worker = self.random.randrange(self.workers) if worker is None else worker
        drill.faults.append(Fault(worker, kind, round=number, seconds=seconds, **moment))

    def event(self, drill, number, moment):
        """Adds what ends a round. Returns false if the moment doesn't exist in this round."""
        if moment == "change of the list":
            workers = self.random.choice([count for count in (1, 2, 3, 4) if count != self.workers])
            drill.changes[number] = workers
            # so that the round lasts until the list has changed.
            self.fault(drill, number, "delay", step=self.saved + 1)
            self.workers = min(self.workers, workers)  # the change may come after a fault of the next round
            return True
        last = self.random.randrange(self.saved, STEPS)  # the step at which the round ends
        if self.vain == MOST_VAIN:  # the round must make a new checkpoint
            last = self.saved + EVERY + self.random.randrange(1, EVERY)
            moment = "middle"
        if moment == "evaluation" and drill.front != "torch":
            return False
        if last >= STEPS or (moment == "recovery" and number == 1) or (moment == "two at once" and self.workers < 2):
            return False
        soon = round(self.random.uniform(0.0005, 0.05), 4)
        is_new = False
        if moment == "start":
            self.fault(drill, number, self.kind("kill", "stop"), at="start", seconds=soon * 4)
        elif moment == "recovery":
            self.fault(drill, number, self.kind("kill", "stop"), at="load", seconds=self.random.choice([0.0, soon]))
        elif moment == "first step":
            self.fault(drill, number, self.kind("kill", "stop"), step=self.saved, seconds=self.random.choice([0.0, soon]))
        elif moment == "save":
            kind = self.kind("kill", "enospc", "enospc", "stop")
            self.fault(drill, number, kind, at="save", seconds=0.0 if kind == "enospc" else self.random.choice([0.0, soon]))
        elif moment == "evaluation":
            self.fault(drill, number, self.kind("kill", "stop"), at="evaluate")
        else:
            kinds = ("kill", "stop", "hang") if last > self.saved else ("kill", "stop")  # first steps have no limit
            for worker in self.random.sample(range(self.workers), 2 if moment == "two at once" else 1):
                self.fault(drill, number, self.kind(*kinds), worker, step=last)
            made = last - last % EVERY
            is_new, self.saved = made > self.saved, max(self.saved, made)
        self.vain = 0 if is_new else self.vain + 1
        return True


class Place:
    """The folder of all drills, with data, model and the undisturbed jobs."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        write_shards(self.folder / "data")
        (self.folder / "model.json").write_text(json.dumps({**MODEL, "num_hidden_layers": 3}))
        self.plain = {}

    def command(self, front, method, layout, name):
        pipelines, stages = layout
        if front == "torch":
            return [sys.executable, str(WORKER), str(self.folder / name), str(STEPS), str(EVERY), method]
        return [*TRAIN, "--data", str(self.folder / "data"), "--model", str(self.folder / "model.json"),
                "--devices", f"pipe_{pipelines}_{stages}", "--pipeline", method, "--batch-size", str(4 // pipelines),
                "--micro-batches", str(4 // pipelines), "--steps", str(STEPS), "--threads", "1", "--points-every", "0",
                "--save-every", str(EVERY), "--learning-rate", "1e-3", "--warmup-steps", "3",
                "--checkpoint", str(self.folder / name / "checkpoint"), "--log", str(self.folder / name / "log")]

    def undisturbed(self, front):
        """Returns the folder of the undisturbed job, which is the same for all methods and layouts."""
        if front not in self.plain:
            self.plain[front] = self.folder / f"plain-{front}"
            self.plain[front].mkdir()
            words = self.command(front, "1f1b", (1, 2), self.plain[front].name)
            done = subprocess.run([*HETURUN, "-w", "2", *words, *(["--sums", "tree"] if front == "graph" else [])],
                                  capture_output=True, text=True, timeout=JOB_S, check=False,
                                  env={**os.environ, "OMP_NUM_THREADS": "1"})
            assert done.returncode == 0, done.stderr
        return self.plain[front]


class Run:
    """One drill as a job. After run(), `problems` says what is wrong."""

    def __init__(self, place, drill):
        self.place, self.drill, self.problems = place, drill, []
        self.name = uuid.uuid4().hex[:8]
        self.folder = place.folder / self.name
        self.folder.mkdir()
        self.machines = self.folder / "machines"
        self.lines = []  # (time, line) of standard error
        self.happened, self.lost, self.silence_s, self.seconds = 0, 0, 0.0, 0.0

    def run(self):
        began, mark = time.time(), f"DRILL_MARK={self.name}"
        count = self.drill.layout[0] * self.drill.layout[1]
        self._list(count)
        hangs = any(fault.kind in ("hang", "stop") for fault in self.drill.faults)
        layout = ["--layout", f"1x{self.drill.layout[1]}x4"] if self.drill.front == "torch" else []
        words = [*HETURUN, "--elastic", "--machines", str(self.machines), *layout,
                 *(["--hang-limit", str(HANG_S)] if hangs else []),
                 *self.place.command(self.drill.front, self.drill.method, self.drill.layout, self.name)]
        # A folder for temporary files with a short name, so that leftovers are found.
        with tempfile.TemporaryDirectory(prefix="drill-", dir="/tmp") as temporary:
            environment = {**os.environ, "DRILL_MARK": self.name, "HETU_FAULT": text_of(self.drill.faults),
                           "TMPDIR": temporary, "HETU_TIMEOUT": str(TIMEOUT_S), "OMP_NUM_THREADS": "1"}
            process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)
            watchdog = threading.Timer(JOB_S, process.kill)
            watchdog.start()
            self._follow(process)
            status = process.wait()
            process.stderr.close()
            watchdog.cancel()
            self.seconds = time.time() - began
            self._check(status == 0, f"status {status}")
            gone = wait_until(lambda: not processes_with(mark), 10.0)
            self._check(gone, f"processes left: {processes_with(mark)}")
            left = [name for name in os.listdir(temporary) if not name.startswith("torchinductor")]  # PyTorch keeps it
            self._check(not left, f"left in the temporary folder: {left}")
        clean = wait_until(lambda: not free_folders(began), 10.0)  # jobs of other tests end here, too
        self._check(clean, f"left in /dev/shm: {free_folders(began)}")
        self._check_lines()
        if status == 0:
            self._check_result()
        if not self.problems:
            shutil.rmtree(self.folder)
        return self

    def _check(self, right, text):
        if not right:
            self.problems.append(text)

    def _list(self, workers):
        beside = self.folder / "machines.new"
        beside.write_text(f"localhost {workers}\n")
        beside.rename(self.machines)

    def _follow(self, process):
        """Reads what the job says, and changes the list of machines."""
        changes, fault_at = dict(self.drill.changes), None
        for line in process.stderr:
            now = time.monotonic()
            self.lines.append((now, line.rstrip("\n")))
            with open(self.folder / "said", "a", encoding="utf-8") as said:  # to look at while the job runs
                said.write(line)
            if "a fault on purpose (HETU_FAULT): " in line:
                self.happened += 1
                fault_at = fault_at or (now if "kind=delay" not in line else None)
            elif line.startswith("heturun: ") and fault_at:
                self.silence_s, fault_at = max(self.silence_s, now - fault_at), None
            elif (found := re.match(r"heturun: round (\d+): ", line)) and int(found[1]) in changes:
                workers = changes.pop(int(found[1]))
                threading.Timer((int(self.name, 16) % 100) / 50, self._list, (workers,)).start()

    def _check_lines(self):
        for _, line in self.lines:
            if found := re.match(r"heturun: the round ended .* after step (\d+); .* its checkpoint of step (\d+)", line):
                lost = int(found[1]) - int(found[2])
                self.lost = max(self.lost, lost)
                self._check(0 <= lost <= EVERY, f"lost {lost} steps: {line}")

    def _check_result(self):
        plain = self.place.undisturbed(self.drill.front)
        done = subprocess.run([HETU, "checkpoint", "diff", str(plain / "checkpoint"), str(self.folder / "checkpoint")],
                              check=False, capture_output=True, text=True)
        self._check(done.returncode == 0, f"weights or optimizer states: {done.stdout[-300:]}{done.stderr[-300:]}")
        names = [sorted(name for name in os.listdir(one / "checkpoint") if not name.startswith("step-"))
                 for one in (plain, self.folder)]
        self._check(names[0] == names[1], f"in the checkpoint folder: {names[1]}, and undisturbed {names[0]}")
        check = self._check_torch_log if self.drill.front == "torch" else self._check_log
        check(plain)

    def _check_log(self, plain):
        """Each step is once in the log, with the same loss. The position in the data is that of the undisturbed job."""
        records = [[(row["step"], row["loss"]) for row in map(json.loads, (one / "log").read_text().splitlines())]
                   for one in (plain, self.folder)]
        self._check([step for step, _ in records[1]] == list(range(STEPS)), f"steps {[step for step, _ in records[1]]}")
        self._check(records[0] == records[1], "losses differ")
        places = [json.loads((one / "checkpoint" / f"step-{STEPS:08d}" / "manifest.json").read_text())["checkpoint"]
                  for one in (plain, self.folder)]
        self._check(*[place_of(places[0]) == place_of(places[1]), "the position in the data differs"])

    def _check_torch_log(self, plain):
        """The last execution of each step counts. Over an epoch, they use each sample once."""
        taken, before, lost = {}, None, 0
        for line in (self.folder / "log").read_text().splitlines():
            process, step, loss, *rows = line.split()
            step = int(step)
            if before and process != before[0]:
                lost = max(lost, before[1] + 1 - step)
            before = process, step
            self._check(taken.setdefault(step, (loss, rows)) == (loss, rows), f"step {step} had another result before")
        self.lost = max(self.lost, lost)
        self._check(lost <= EVERY, f"lost {lost} steps")
        self._check(sorted(taken) == list(range(STEPS)), f"steps {sorted(taken)}")
        for epoch in range(STEPS // 4):
            rows = sorted(int(row) for step in range(4 * epoch, 4 * epoch + 4) for row in taken.get(step, ("", []))[1])
            self._check(rows == list(range(48)), f"epoch {epoch} has the samples {rows}")
        losses = [line.split()[2] for line in (plain / "log").read_text().splitlines()]
        self._check([taken[step][0] for step in sorted(taken)] == losses, "losses differ")

    def text(self):
        return "\n".join(line for _, line in self.lines)


def place_of(manifest):
    """Returns the position in the data that a manifest holds."""
    text = json.dumps(manifest)
    found = re.search(r'\\?"position\\?": ?(\{[^}]*\})', text)
    assert found, text[:2000]
    return found[1]


def free_folders(since):
    """Returns this user's job folders in /dev/shm that were made after `since` and that no process holds any more."""
    found = []
    for entry in os.scandir("/dev/shm"):
        try:
            if not folders.OURS.fullmatch(entry.name) or entry.stat().st_uid != os.getuid() or entry.stat().st_mtime < since:
                continue
            lock = os.open(os.path.join(entry.path, folders.HELD), os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                found.append(entry.path)
            finally:
                os.close(lock)
        except OSError:
            continue
    return [path for path in found if os.path.exists(path)]


def interval(right, total, z=1.96):
    """Returns Wilson's 95 % confidence interval of a share."""
    if not total:
        return 0.0, 1.0
    share, square = right / total, z * z
    middle, half = share + square / (2 * total), z * math.sqrt(share * (1 - share) / total + square / (4 * total * total))
    return tuple(max(0.0, min(1.0, (middle + sign * half) / (1 + square / total))) for sign in (-1, 1))

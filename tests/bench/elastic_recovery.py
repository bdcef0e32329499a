#!/usr/bin/env python3
"""Measures the time from a worker's death to the first new step of an elastic job, by phase. The job trains BERT-tiny in 2
stages, and the last worker is killed once in each round.

elastic_recovery.py [DEATHS] [heturun flags] prints medians, and the smallest and largest values. Run it on a machine that
does nothing else.

    detection    from the kill to heturun's line that names the worker
    end          to the end of the other workers
    start        to the first line of a new worker: mpirun, Python and its modules
    load         to the line that the checkpoint is loaded: model, plan, links and weights
    first step   to the record of the first new step in the log
"""
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "python" / "small_jobs"))
from train_cases import columns, write_shard  # noqa: E402

WORDS, TOKENS = 30522, 128  # the vocabulary of BERT, which holds nine tenths of BERT-tiny's weights
EVERY = 5  # steps between checkpoints
PHASES = ("detection", "end", "start", "load", "first step")
# The line of output that ends each phase but the last.
ENDS = (re.compile(r"heturun: worker \d+ .* was killed by SIGKILL"), re.compile(r"heturun: round \d+: "),
        re.compile(r"\[0\] hetu: computing on"), re.compile(r"\[0\] Resumed from "))


class Watch(threading.Thread):
    """Notes the time at which the log of a training gets each of its records."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path, self.times, self.ended = path, [], threading.Event()

    def run(self):
        at = 0
        while not self.ended.wait(0.002):
            size = self.path.stat().st_size if self.path.exists() else 0
            if size > at:
                self.times.append(time.monotonic())
            at = size  # a resumed training cuts its log


def measure(folder, deaths, flags):
    """Returns the seconds of each phase for each death."""
    (folder / "data").mkdir()
    write_shard(folder / "data" / "small_training_0.hdf5", columns(400, TOKENS, 1))
    (folder / "data" / "vocab.txt").write_text("".join(f"word{number}\n" for number in range(WORDS)))
    faults = ";".join(f"worker=1,step={number * EVERY + 2},kind=kill,round={number}" for number in range(1, deaths + 1))
    log = folder / "log"
    words = [sys.executable, ROOT / "python" / "heturun", "--elastic", *(flags or ["-w", "2"]), sys.executable,
             ROOT / "python" / "train_bert.py", "--data", folder / "data", "--model", "tiny", "--devices", "pipe_1_2",
             "--pipeline", "1f1b", "--batch-size", "8", "--micro-batches", "4", "--threads", "1", "--points-every", "0",
             "--steps", (deaths + 1) * EVERY + 5, "--save-every", EVERY, "--checkpoint", folder / "saved", "--log", log]
    process = subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               env={**os.environ, "HETU_FAULT": faults})
    watch = Watch(log)
    watch.start()
    found, times, said = [], None, ""
    for line in process.stdout:
        now = time.monotonic()
        said += line
        if "a fault on purpose (HETU_FAULT): " in line:
            times = [now]
            found.append(times)
        elif times and len(times) <= len(ENDS) and ENDS[len(times) - 1].match(line):
            times.append(now)
    if process.wait() != 0 or len(found) != deaths or any(len(times) != len(ENDS) + 1 for times in found):
        raise SystemExit(said)
    watch.ended.set()
    for times in found:
        times.append(min(when for when in watch.times if when > times[-1]))
    return [[later - before for before, later in zip(times, times[1:], strict=False)] for times in found]


def main(deaths=5, *flags):
    with tempfile.TemporaryDirectory() as folder:
        found = measure(pathlib.Path(folder), int(deaths), list(flags))
    rows = [*zip(PHASES, zip(*found, strict=True), strict=True), ("all", [sum(phases) for phases in found])]
    for name, seconds in rows:
        print(f"{name:12} {statistics.median(seconds):6.2f} s   ({min(seconds):.2f} to {max(seconds):.2f})")
    print(json.dumps({"deaths": int(deaths), "cores": os.cpu_count(), "load": os.getloadavg()[0]}))


if __name__ == "__main__":
    main(*sys.argv[1:])

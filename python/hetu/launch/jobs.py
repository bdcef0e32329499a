"""heturun ps, logs, stop and watch: the jobs of this user on this host, and the run folders of jobs that have ended. They
only read run folders (run_folder.py); `stop` sends a signal to heturun. watch.py has the page of `heturun watch`."""
import argparse
import datetime
import heapq
import os
import re
import shutil
import signal
import sys
import time

from hetu.launch import processes, run_folder
from hetu.launch.run_folder import JOB, RUNS, STATUS
from hetu.launch.slow import seconds
from hetu.progress import duration, quantity

POLL_S = 0.5
STALE_S = 15.0  # a job on another host whose status is older than this isn't said to run
TIMED = re.compile(rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} ")


class JobError(ValueError):
    """A job that can't be found, or that can't be stopped."""


class Found:
    """A job with its run folder, as it is now."""

    def __init__(self, path):
        self.path = path
        self.job = run_folder.read(os.path.join(path, JOB)) or {}
        self.status = run_folder.read(os.path.join(path, STATUS)) or {}
        self.alive = run_folder.is_alive(self.job)
        self.name = str(self.job.get("job", ""))[:6]

    def state(self):
        """Describes the job in a few words."""
        if not self.alive:
            return self._end()
        workers = self.status.get("workers", [])
        for what in ("stopped", "slow"):
            if found := [str(w["worker"]) for w in workers if w["state"] == what]:
                return f"{'workers' if len(found) > 1 else 'worker'} {', '.join(found)} {what}"
        if "status" in self.status:
            return "between rounds" if self.job.get("elastic") else "ends"
        return "starts" if not workers or any(w["state"] == "starts" for w in workers) else "runs"

    def _end(self):
        if "status" in self.status:
            return "finished" if self.status["status"] == 0 else f"ended: status {self.status['status']}"
        if not run_folder.is_here(self.job):
            age = time.time() - self.status.get("written", 0)
            return f"runs on {self.job.get('host')}" if age < STALE_S else f"silent on {self.job.get('host')}"
        return "killed"

    def cells(self):
        """Returns the row of `heturun ps`."""
        now = self.status
        step = "" if now.get("step") is None else f"{now['step']}/{now['total']}" if now.get("total") else str(now["step"])
        memory = sum(self._memory(w) for w in now.get("workers", []))
        return [self.name, self.state(), step, _text(now.get("loss"), "{:.4f}"),
                _text(now.get("samples_per_s"), "", quantity), _text(now.get("eta_s") if self.alive else None, "", duration),
                str(len(now.get("workers", [])) or ""), _gib(memory),
                str(self.job.get("began", ""))[:16].replace("T", " "), " ".join(map(str, self.job.get("command", [])))]


    def _memory(self, worker):
        """Returns the bytes that a worker of this host uses; 0 if it has ended or is elsewhere."""
        return processes.memory_of(worker["pid"]) if self.alive and worker["host"] == self.job.get("host") else 0

    def workers(self):
        """Returns the rows of `heturun ps JOB`."""
        return [[str(w["worker"]), w["host"], str(w["pid"] or ""), w["state"], _text(w.get("step"), "{}"),
                 _text(w.get("compute_s"), "", seconds), _gib(self._memory(w)), w.get("at", "") if self.alive else ""]
                for w in self.status.get("workers", [])]


def began_of(found):
    """Returns the time at which a job began, in seconds since 1970, or 0 if its run folder doesn't say."""
    try:
        return datetime.datetime.fromisoformat(str(found.job.get("began"))).timestamp()
    except ValueError:
        return 0.0


def checkpoint_of(found):
    """Returns (step, age, folder) of a job's last checkpoint as texts, or None if it has saved none."""
    saved = found.status.get("checkpoint")
    return saved and [str(saved["step"]), f"{duration(max(0.0, time.time() - saved['time']))} ago", saved["folder"]]


def _gib(memory):
    return f"{memory / 2**30:.1f} GiB" if memory else ""


def _text(value, form, function=None):
    return "" if value is None else function(value) if function else form.format(value)


def living():
    """Returns the run folders of this user's jobs on this host. Links of jobs that were killed are removed."""
    folder = run_folder.registry()
    found = []
    for name in sorted(os.listdir(folder)) if folder else []:
        link = os.path.join(folder, name)
        try:
            path = os.readlink(link)
        except OSError:  # the job has just ended
            continue
        job = run_folder.read(os.path.join(path, JOB))
        if job and job.get("job") == name and run_folder.is_alive(job):
            found.append(path)
        else:
            try:
                os.unlink(link)
            except OSError:
                pass
    return found


def below(folder):
    """Returns the run folders in a folder, oldest first."""
    if os.path.exists(os.path.join(folder, JOB)):
        return [folder]
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    return [os.path.join(folder, name) for name in names if os.path.exists(os.path.join(folder, name, JOB))]


def usual_runs():
    """Returns the folder in which jobs of the current folder have their run folders."""
    named = os.environ.get(RUNS)
    return "runs" if named in (None, "", "none") else named


def find(text):
    """Returns the Found job of a run folder, or of the first characters of a job's name. Raises JobError."""
    if os.path.isdir(text):
        if not os.path.exists(os.path.join(text, JOB)):
            raise JobError(f"{text} is no run folder: it has no {JOB}; heturun ps -a lists the run folders here")
        return Found(os.path.abspath(text))
    paths = {os.path.realpath(path) for path in [*living(), *below(usual_runs())]}
    found = [job for job in map(Found, sorted(paths)) if text and str(job.job.get("job", "")).startswith(text)]
    if not found:
        raise JobError(f"no job '{text}' on this host or in {usual_runs()}: give a name that heturun ps -a lists, or a run "
                       "folder")
    if len(found) > 1:
        raise JobError(f"job '{text}' is one of {', '.join(str(job.job['job']) for job in found)}: give more of its name")
    return found[0]


def ps(given):
    """Prints a table of jobs, and one of the workers of a single job that was named."""
    is_folder_of_jobs = given.job and os.path.isdir(given.job) and not os.path.exists(os.path.join(given.job, JOB))
    if given.job and not is_folder_of_jobs:
        jobs = [find(given.job)]
    else:
        paths = [*(below(given.job) if given.job else living()), *(below(usual_runs()) if given.all else [])]
        jobs = [Found(path) for path in dict.fromkeys(map(os.path.realpath, paths))]
    if not jobs:
        where = f"in {given.job}" if given.job else f"on this host{f' or in {usual_runs()}' if given.all else ''}"
        print(f"no job {where}" + ("" if given.job or given.all else "; heturun ps -a lists those that have ended, too"))
        return 0
    print_table([["JOB", "STATE", "STEP", "LOSS", "SAMPLES/S", "ETA", "WORKERS", "MEMORY", "BEGAN", "COMMAND"],
                 *(job.cells() for job in sorted(jobs, key=lambda job: str(job.job.get("began", ""))))])
    if given.job and len(jobs) == 1 and jobs[0].status.get("workers"):
        print()
        print_table([["WORKER", "HOST", "PID", "STATE", "STEP", "COMPUTE/STEP", "MEMORY", "DOES"], *jobs[0].workers()])
    if given.job and len(jobs) == 1 and (saved := checkpoint_of(jobs[0])):
        print("\nlast checkpoint: step {}, {}, in {}".format(*saved))
    return 0


def print_table(rows):
    """Prints rows of texts below each other; on a terminal, as wide as it is."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=True)]
        print("  ".join([*cells, row[-1]]).rstrip()[:columns])


def only():
    """Returns the Found job of this user that runs on this host, if it is the only one. Raises JobError."""
    found = [Found(path) for path in living()]
    if not found:
        raise JobError("no job runs on this host: give a run folder, or a name that heturun ps -a lists")
    if len(found) > 1:
        raise JobError(f"jobs {', '.join(job.name for job in found)} run on this host: name one, as in heturun watch "
                       f"{found[0].name}")
    return found[0]


def watch(given):
    """Serves the page of a job until Ctrl-C."""
    from hetu.launch import watch as page  # its HTTP server takes as long to import as all the rest

    return page.serve(find(given.job) if given.job is not None else only(), given.port, given.open)


class Reader:
    """Reads the lines that are appended to one file of a run folder."""

    def __init__(self, path, tag):
        self.path, self.tag = path, tag
        self.at = 0
        self.last = b""  # the time of the line before, for a line without one

    def lines(self):
        """Yields (time, tag, line) of each complete line that is new."""
        with open(self.path, "rb") as file:
            file.seek(self.at)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self.at += len(line)
                time_of = TIMED.match(line)
                self.last = time_of.group() if time_of else self.last
                yield self.last, self.tag, line


def readers(path, worker, known=()):
    """Returns a Reader for each log in a run folder that isn't `known`; only that of `worker` if it is given."""
    found = []
    for name in sorted(os.listdir(path)):
        kind = re.fullmatch(r"(worker-(\d+)|heturun)\.log", name)
        if kind and name not in known and (worker is None or kind.group(2) == str(worker)):
            found.append((name, Reader(os.path.join(path, name), f"[{kind.group(2)}] " if kind.group(2) else "heturun: ")))
    return dict(found)


def logs(given):
    """Prints what a job has printed, in order of time."""
    job = find(given.job)
    logs_of = readers(job.path, given.worker)
    if given.worker is not None and not logs_of and not (given.follow and job.alive):
        raise JobError(f"job {job.name} has no output of a worker {given.worker}: {describe_logs(job.path)}")
    kept = []
    while True:
        alive = run_folder.is_alive(job.job)
        found = heapq.merge(*(reader.lines() for reader in logs_of.values()))
        if given.lines is not None:
            kept = list(found)[-given.lines:] if given.lines else []
            given.lines = None
            found = iter(kept)
        for _, tag, line in found:
            text = line if given.worker is not None else _tagged(line, tag)
            sys.stdout.buffer.write(text)
        sys.stdout.flush()
        if not given.follow or not alive:
            return 0
        time.sleep(POLL_S)
        logs_of |= readers(job.path, given.worker, logs_of)


def _tagged(line, tag):
    time_of = TIMED.match(line)
    end = time_of.end() if time_of else 0
    return line[:end] + tag.encode() + line[end:]


def describe_logs(path):
    numbers = sorted(int(name[7:-4]) for name in readers(path, None) if name.startswith("worker-"))
    return f"workers {', '.join(map(str, numbers))} have printed something" if numbers else "no worker has printed anything"


def stop(given):
    """Asks a job to save and end, and waits for its end."""
    job = find(given.job)
    if not job.alive:
        if not run_folder.is_here(job.job):
            raise JobError(f"job {job.name} runs on {job.job.get('host')}: type this there")
        print(f"job {job.name} doesn't run any more: {job.state()}")
        return 0
    if not given.now and not job.job.get("elastic") and job.status.get("training") not in ("saves", "over"):
        why = ("it trains without a checkpoint folder" if job.status.get("training") == "unsaved" else
               "it hasn't said that it can save (it may be starting)")
        raise JobError(f"job {job.name} can't save: {why}; heturun stop --now {given.job} ends it without saving")
    os.kill(job.job["pid"], signal.SIGTERM if given.now else signal.SIGUSR1)
    print(f"job {job.name} ends at once" if given.now else f"job {job.name} saves and ends", flush=True)
    until = time.monotonic() + given.timeout
    while run_folder.is_alive(job.job):
        if time.monotonic() >= until:
            raise JobError(f"job {job.name} hasn't ended in {given.timeout:g} s; heturun logs {given.job} shows what it "
                           f"does, and heturun stop --now {given.job} ends it without saving")
        time.sleep(0.1)
    print(f"job {job.name} {Found(job.path).state()}")
    return 0


def parser():
    """Returns the parser of the commands."""
    text = ("Each job has a run folder with its state and its logs: runs/<date>-<time>-<script> in the folder where heturun "
            "was started, or that of --run-dir. JOB is a run folder, or the first characters of a job's name.")
    commands = argparse.ArgumentParser(prog="heturun", description=text)
    parts = commands.add_subparsers(dest="what", required=True)
    one = parts.add_parser("ps", help="the jobs of this user on this host", description=text)
    one.add_argument("job", metavar="JOB", nargs="?", help="one job, with its workers; or a folder of run folders, whose "
                                                           "jobs may have ended, or run on other hosts")
    one.add_argument("-a", "--all", action="store_true", help="also the jobs in ./runs (HETU_RUNS) that have ended")
    one = parts.add_parser("logs", help="what a job has printed", description=text)
    one.add_argument("job", metavar="JOB")
    one.add_argument("worker", nargs="?", type=whole, help="the number of one worker (default: all, and heturun)")
    one.add_argument("-f", "--follow", action="store_true", help="go on until the job ends")
    one.add_argument("-n", "--lines", type=whole, metavar="N", help="only the last N lines")
    one = parts.add_parser("stop", help="lets a job save a checkpoint and end", description=text)
    one.add_argument("job", metavar="JOB")
    one.add_argument("--now", action="store_true", help="end it at once, without saving")
    one.add_argument("--timeout", type=float, default=600.0, metavar="S",
                     help="seconds to wait for the end (default %(default)g)")
    one = parts.add_parser("watch", help="a page in the browser that follows a job", description=text)
    one.add_argument("job", metavar="JOB", nargs="?", help="default: the job that runs on this host, if it is the only one")
    one.add_argument("--port", type=whole, metavar="N", default=0, help="port of 127.0.0.1 (default: a free one)")
    one.add_argument("--no-open", dest="open", action="store_false", help="only print the address of the page; open no "
                                                                          "browser")
    return commands


def whole(text):
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise argparse.ArgumentTypeError(f"'{text}' is no whole number from 0")
    return int(text)


def main(argv):
    """Runs one of the commands. Returns its exit status."""
    given = parser().parse_args(argv)
    try:
        return {"ps": ps, "logs": logs, "stop": stop, "watch": watch}[given.what](given)
    except JobError as error:
        print(f"heturun {given.what}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt:  # ends logs -f and the wait of stop
        return 128 + signal.SIGINT

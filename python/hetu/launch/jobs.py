"""heturun ps, logs, stop and watch: the jobs of this user on this host, and the run folders of jobs that have ended. They
only read run folders (run_folder.py); `stop` sends a signal to heturun. watch.py has the page of `heturun watch`, and
machine_list.py `add` and `remove`."""
import argparse
import heapq
import os
import re
import shutil
import signal
import sys
import time

from hetu.launch import run_folder
from hetu.launch.found import TIMED, Found, JobError, below, checkpoint_of, find, living, only, usual_runs
from hetu.launch.run_folder import JOB

POLL_S = 0.5


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
    for what, text in (("add", "adds workers of a host to the machines of an elastic job"),
                       ("remove", "removes a host from the machines of an elastic job")):
        one = parts.add_parser(what, help=text, description=f"{text[0].upper()}{text[1:]}: replaces the file of --machines, "
                                                            "which the job watches. Only the user of the job can do it.")
        one.add_argument("host", metavar="HOST")
        if what == "add":
            one.add_argument("workers", metavar="WORKERS", nargs="?", type=whole, help="the number of workers (default 1)")
        one.add_argument("--job", metavar="JOB", help="the job (default: your only elastic job on this host)")
    return commands


def whole(text):
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise argparse.ArgumentTypeError(f"'{text}' is no whole number from 0")
    return int(text)


def main(argv, **more):
    """Runs one of the commands. Returns its exit status. `more`: the functions of commands that aren't in this module."""
    given = parser().parse_args(argv)
    try:
        return {"ps": ps, "logs": logs, "stop": stop, "watch": watch, **more}[given.what](given)
    except JobError as error:
        print(f"heturun {given.what}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt:  # ends logs -f and the wait of stop
        return 128 + signal.SIGINT

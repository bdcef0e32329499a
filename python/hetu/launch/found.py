"""The jobs of this user on this host, and those that have ended: their state by their run folders (run_folder.py). Read by
jobs.py and watched.py."""
import datetime
import os
import re
import time

from hetu.launch import processes, run_folder
from hetu.launch.run_folder import JOB, RUNS, STATUS
from hetu.launch.slow import seconds
from hetu.progress import duration, quantity

STALE_S = 15.0  # a job on another host whose status is older than this isn't said to run
TIMED = re.compile(rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} ")  # begins a line of a log


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


def only():
    """Returns the Found job of this user that runs on this host, if it is the only one. Raises JobError."""
    found = [Found(path) for path in living()]
    if not found:
        raise JobError("no job runs on this host: give a run folder, or a name that heturun ps -a lists")
    if len(found) > 1:
        raise JobError(f"jobs {', '.join(job.name for job in found)} run on this host: name one, as in heturun watch "
                       f"{found[0].name}")
    return found[0]

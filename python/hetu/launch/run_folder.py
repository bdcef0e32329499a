"""The run folder of a job: what it is, how far it is, and what it printed. heturun ps, logs, watch and stop read it.

    job.json        the command, the time it began, its hosts and settings; the process id of heturun
    status.json     step, loss, rate, last checkpoint and the state of each worker, once a second; at the end the exit status
    progress.jsonl  the losses and rates so far, thinned out (history.py)
    worker-N.log    what worker N printed. Each line begins with its time; lines of standard error continue with "! "
    heturun.log     heturun's own lines and the progress

The default is a new folder runs/<date>-<time>-<name of the script> below the current one. HETU_RUNS names another folder in
place of runs; HETU_RUNS=none keeps no run folder. A link in a folder of this user in /tmp lists the job on this host.

A fault of the folder, such as a full disk, never ends a job: heturun says so once and goes on without it.
"""
import contextlib
import datetime
import json
import os
import re
import socket
import stat
import time

from hetu import files
from hetu.launch import output
from hetu.launch.environment import EXPORTED, FOREIGN
from hetu.launch.history import HISTORY, Points

RUNS = "HETU_RUNS"  # the folder for run folders, or "none"
JOINED = "HETU_RUN_FOLDER"  # set by heturun --elastic for its rounds
JOB, STATUS = "job.json", "status.json"
SECRET = re.compile(r"SECRET|TOKEN|PASSWORD|KEY")  # parts of the names of variables that job.json leaves out
MOST = 64 << 20  # bytes of such a file that are read
STATUS_EVERY_S = 1.0
OF_PROGRESS = ("step", "total", "loss", "samples_per_s")
OF_JOB = ("checkpoint", "trace")
PROGRESS_EVERY_S = 10.0


class RunFolderError(ValueError):
    """A run folder that a job can't have."""


def default_path(command, environ):
    """Returns the path of a new run folder, or None if the job keeps none: by HETU_RUNS, or because its command is a `hetu`
    command."""
    runs = environ.get(RUNS) or "runs"
    if runs == "none" or os.path.basename(command[0]) == "hetu":
        return None
    script = next((word for word in command if word.endswith(".py")), command[0])
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", os.path.splitext(os.path.basename(script))[0]) or "job"
    return os.path.join(runs, f"{datetime.datetime.now():%Y%m%d-%H%M%S}-{name}")


def create(path, is_default):
    """Creates a run folder. Returns its absolute path, and true if it didn't exist. A default path that exists gets a
    number. Raises OSError, or RunFolderError if a living job uses the folder."""
    number, wanted, is_new = 1, path, True
    while True:
        try:
            os.makedirs(path)
            break
        except FileExistsError:
            if not is_default:
                is_new = False
                break
            number += 1
            path = f"{wanted}-{number}"
    path = os.path.abspath(path)
    job = read(os.path.join(path, JOB))
    if job and is_alive(job):
        raise RunFolderError(f"--run-dir {path}: job {job['job'][:6]} (pid {job['pid']}) uses this folder; "
                             "choose another one")
    return path, is_new


def open_for(options, say):
    """Returns the RunFolder of a new job: that of --run-dir, the default one, or one that nothing is written to. A round of
    an elastic job writes into the folder of that job, whose job.json belongs to heturun --elastic."""
    if joined := os.environ.get(JOINED):
        folder = RunFolder(joined, say)
        folder.carry(*OF_JOB)
        return folder
    path = options.run_dir or default_path(options.command, os.environ)
    if path is None:
        return RunFolder(None, say)
    try:
        path, is_new = create(path, not options.run_dir)
        return RunFolder(path, say, is_new)
    except OSError as error:
        if options.run_dir:
            raise RunFolderError(f"--run-dir {path}: {error.strerror}; give a folder that can be written") from None
        say(f"the run folder {path} can't be made: {error.strerror}; the job keeps no logs (--run-dir names a folder)")
        return RunFolder(None, say)


def read(path):
    """Returns the object in a JSON file of a run folder, or None if there is none."""
    try:
        found = files.read_json(path, MOST)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def start_of(pid):
    """Returns the time at which a process of this host started, in clock ticks since the boot; 0 if it doesn't exist."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return 0 if fields[0] in (b"Z", b"X") else int(fields[19])
    except (OSError, IndexError):
        return 0


def is_here(job):
    return job.get("host") == socket.gethostname()


def is_alive(job):
    """Returns true if the heturun of this job runs on this host."""
    return is_here(job) and job.get("pid_start", 0) == start_of(job.get("pid", 0)) != 0


def registry(make=False):
    """Returns the folder with a link for each job of this user on this host, or None if there is none. It must belong to
    the user, because others can create a folder of that name in /tmp."""
    path = f"/tmp/hetu-jobs-{os.getuid()}"
    try:
        if make:
            os.makedirs(path, mode=0o700, exist_ok=True)
        found = os.lstat(path)
    except OSError:
        return None
    return path if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() else None


class RunFolder:
    """Writes one run folder. With None as the path, nothing is written. `say` prints a line of heturun. `is_new`: the folder
    was made for this job, and is removed if the job doesn't begin."""

    def __init__(self, path, say, is_new=False):
        self.path = path
        self._is_new = is_new
        self._say = say
        self._files = {}
        self._good = path is not None
        self._link = ""
        self._begun = self._ended = self._is_elastic = False
        self._status_at = self._progress_at = -1e9
        self._shown = ""
        self._record = {}
        self._points = Points()
        self._clock = time.monotonic

    def begin(self, job, command, nodes, elastic=False, **more):
        """Writes job.json, with the fields of `more`, lists the job on this host, and says where its folder is."""
        if not self._good or os.environ.get(JOINED) == self.path:
            return
        from hetu import _hetu

        self._begun, self._is_elastic = True, elastic
        described = {"job": job, "command": command, "directory": os.getcwd(), "host": socket.gethostname(),
                     "pid": os.getpid(), "pid_start": start_of(os.getpid()),
                     "began": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
                     "version": _hetu.__version__, "nodes": nodes, "elastic": elastic, **more,
                     "environment": {name: value for name, value in sorted(os.environ.items()) if EXPORTED.match(name)
                                     and not FOREIGN.match(name) and not SECRET.search(name)}}
        self._try(lambda: self._replace(STATUS, {"workers": []}))
        self._try(lambda: self._replace(JOB, described))
        if self._good and (folder := registry(make=True)):
            self._link = os.path.join(folder, job)
            try:
                os.symlink(self.path, self._link)
            except OSError:  # the job is found by its folder only
                self._link = ""
        if self._good:
            near = os.path.relpath(self.path)
            self._say(f"job {job[:6]}: logs in {self.path if near.startswith('..') else near}; heturun ps, logs, "
                      "watch and stop")

    def output(self, worker, is_out, text):
        """Appends text of a worker: whole lines, or a part of one."""
        mark = b"" if is_out else b"! "
        self._append(f"worker-{worker}.log", output.tagged(_now() + mark, text))

    def line(self, text):
        """Appends a line of heturun."""
        self._append("heturun.log", _now() + text.encode(errors="backslashreplace") + b"\n")

    def progress(self, record, eta_s, text):
        """Notes a record of progress for the next call of status()."""
        self._record |= {name: record.get(name) for name in (*OF_PROGRESS, "tokens_per_s")} | {"eta_s": eta_s}
        self._shown = text
        self._points.take(record, self._clock(), time.time())

    def carry(self, *names):
        """Takes these entries of the state from an earlier round of the job."""
        earlier = read(os.path.join(self.path, STATUS)) or {}
        self._record |= {name: earlier[name] for name in names if name in earlier}

    def note(self, name, value):
        """Notes an entry of the state for the next call of status(): the last checkpoint {"step", "folder", "time"}, or the
        path of the trace."""
        self._record[name] = value

    def status(self, workers, pace, more=None, at_once=False):
        """Writes the state of the job, at most once a second or `at_once`, and from time to time the progress to the log.
        The state is written first: whoever reads of a step in the log finds it in the state too. `workers`: the Workers of
        the job, and `pace` their Slow; `more`: further fields, which are written at once."""
        now = self._clock()
        logs = bool(self._shown) and now - self._progress_at >= PROGRESS_EVERY_S
        if more is None and not logs and not at_once and now - self._status_at < STATUS_EVERY_S:
            return
        self._status_at = now
        states = [{"worker": w.number, "host": w.host, "pid": w.pid, "state": state_of(w, pace), "compute_s": pace.mean(w),
                   "usual_s": pace.usual(w), "step": w.beat.get("step"), "row": w.beat.get("row"),
                   "phase": w.beat.get("phase", ""), "at": w.beat.get("at", "")} for w in workers]
        training = next((w.training for w in workers if w.training), "")
        self._try(lambda: self._replace(STATUS, {**self._record, "training": training, "written": time.time(),
                                                 "workers": states, **(more or {})}))
        if lines := self._points.lines(is_end=more is not None):
            self._append(HISTORY, lines)
        if logs:
            self._progress_at = now
            self._log_progress()

    def _log_progress(self):
        if self._shown:
            self.line(self._shown)
            self._shown = ""

    def end(self, workers, pace, code):
        """Writes the end of the job, or of a round. `pace` is None if it isn't known."""
        self._ended = True
        if self._is_elastic and self._good:
            self.carry(*OF_PROGRESS, *OF_JOB)
        self._log_progress()
        now = datetime.datetime.now().astimezone()
        self.status(workers, pace, {"ended": now.isoformat(timespec="seconds"), "status": code})
        for file in self._files.values():
            file.close()
        self._files = {}

    def leave(self):
        """Removes the job from the list of this host. Notes a failure if heturun itself has failed, so that no end was
        written."""
        if self._is_new and not self._begun:
            self._remove()
        if self._begun and not self._ended:
            self.end([], None, 1)
        if self._link:
            try:
                os.unlink(self._link)
            except OSError:
                pass
            self._link = ""

    def _remove(self):
        """Removes the folder of a job that was refused: heturun has printed the reason."""
        for file in self._files.values():
            file.close()
            os.unlink(file.name)
        self._files, self._good = {}, False
        with contextlib.suppress(OSError):
            os.rmdir(self.path)

    def _append(self, name, data):
        def write():
            if name not in self._files:
                self._files[name] = open(os.path.join(self.path, name), "ab", buffering=0)  # noqa: SIM115
            self._files[name].write(data)
        self._try(write)

    def _replace(self, name, content):
        with files.replaced(os.path.join(self.path, name)) as path, open(path, "w", encoding="utf-8") as file:
            json.dump(content, file)

    def _try(self, write):
        if not self._good:
            return
        try:
            write()
        except OSError as error:
            self._good = False
            self._say(f"the run folder {self.path} can't be written: {error.strerror}; the job goes on, and its logs end "
                      "here")


def state_of(worker, pace):
    """Describes a worker in one word or a few."""
    if worker.code is not None:
        return "ended" if worker.code == 0 else worker.end()
    if not worker.started:
        return "starts"
    return "stopped" if worker.stopped else "slow" if pace.is_slow(worker) else "runs"


def _now():
    return f"{datetime.datetime.now().isoformat(sep=' ', timespec='milliseconds')} ".encode()

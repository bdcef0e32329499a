"""Collects what `heturun watch` shows of one job. All of it comes from the job's run folder, so it is the same for jobs that
run, that have ended and that were killed, and reading it doesn't touch the job.

The texts of numbers are those of `heturun ps`."""
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time

from hetu.launch.found import STALE_S, TIMED, Found, began_of, checkpoint_of
from hetu.launch.history import HISTORY, Course
from hetu.progress import duration

MOST_GROUPS = 600  # of points in a curve
MESSAGES = 40  # last lines of heturun
TAIL = 64 << 10  # bytes of a log that are read at first
MOST_TAIL = 256 << 10  # bytes of new lines that one answer has at most
MOST_LINE = 2000  # characters of a line
WORDS = 40  # last lines on standard error of a worker that failed
DRAW_S = 120.0  # limit for the drawing of a trace
LOG = re.compile(r"(?:worker-\d+|heturun)\.log")
OF_PROGRESS = re.compile(r"step \d+(?:/\d+ \(\d+ %\))?: ")
CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b.?|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
TIME = slice(11, 23)  # of a line of a log


class Log:
    """Reads the end of one log."""

    def __init__(self, path):
        self.path = path

    def tail(self, start, is_over):
        """Returns (lines, next start, true if lines before them were left out). start: the end of what was read before, or
        None. A line without an end is still being written; it is returned if `is_over`."""
        try:
            with open(self.path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                begins = start is None or start > size or size - start > MOST_TAIL
                at = max(0, size - TAIL) if begins else start
                file.seek(at)
                data = file.read(size - at)
        except FileNotFoundError:
            return [], 0, False
        is_cut = begins and at > 0
        if is_cut:  # in the middle of a line
            first = data.find(b"\n") + 1
            at, data = at + first, data[first:]
        end = len(data) if is_over else data.rfind(b"\n") + 1
        return [line_of(line) for line in data[:end].split(b"\n") if line], at + end, is_cut


def line_of(line):
    """Returns [time of day, true if the line is of standard error, text] of a line of a log."""
    found = TIMED.match(line)
    begin = line[:found.end()].decode()[TIME] if found else ""
    text = line[found.end() if found else 0:].decode(errors="replace")
    is_error = text.startswith("! ")
    text = text[2 * is_error:].rstrip("\r").rpartition("\r")[2]  # what a terminal would show of a bar
    text = CONTROL.sub("", text.replace("\t", "    "))
    return [begin, is_error, text if len(text) <= MOST_LINE else text[:MOST_LINE] + " …"]


class Watched:
    """One job. Its methods may be called from several threads."""

    def __init__(self, path):
        self.path = path
        self._course = Course(os.path.join(path, HISTORY))
        self._lock = threading.Lock()
        self._drawn = None, None  # (a trace with its time and size), what draw() returns

    def state(self):
        """Returns the state of the job, for JSON."""
        found = Found(self.path)
        name, state, step, loss, rate, eta, count, memory, _, _ = found.cells()
        status = found.status
        with self._lock:
            self._course.update()
            points = [len(self._course.steps), self._course.steps[-1] if self._course.steps else 0]
        code = None if found.alive else status.get("status")
        return {
            "job": name, "path": self.path, "state": state if found.job else "gone: its run folder was removed",
            "kind": kind_of(found), "alive": found.alive, "status": code,
            "command": shlex.join(map(str, found.job.get("command", []))),
            "directory": found.job.get("directory", ""), "host": found.job.get("host", ""),
            "began": _time(found.job.get("began")), "ended": _time(status.get("ended")) if code is not None else "",
            "version": found.job.get("version", ""), "silent": silence(found),
            "step": step, "loss": loss, "rate": rate, "eta": eta, "memory": memory, "count": count,
            "done": [status.get("step") or 0, status.get("total") or 0], "checkpoint": checkpoint_of(found),
            "measured": any(w.get("compute_s") is not None for w in status.get("workers", [])),
            "workers": workers_of(found), "logs": logs_of(self.path), "points": points,
            "messages": self._messages(found), "words": self._last_words(found) if code else [],
            "trace": self._trace(found),
        }

    def losses(self, most=MOST_GROUPS):
        """Returns the curve of the loss, for JSON."""
        with self._lock:
            self._course.update()
            return {"groups": self._course.thinned(most), "points": len(self._course.steps),
                    "not_numbers": self._course.not_numbers()}

    def log(self, name, start):
        """Returns the new lines of a log, for JSON, or None if the job has no such log."""
        if not LOG.fullmatch(name):
            return None
        alive = Found(self.path).alive
        lines, end, is_cut = Log(os.path.join(self.path, name)).tail(start, not alive)
        return {"lines": lines, "next": end, "cut": is_cut}

    def _messages(self, found):
        """Returns the last lines of heturun itself in this job, without those of progress."""
        began = str(found.job.get("began", ""))[11:19]
        day = str(found.job.get("began", ""))[:10]
        path = os.path.join(self.path, "heturun.log")
        try:
            with open(path, "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
                lines = [line for line in file.read().split(b"\n") if TIMED.match(line)]
        except FileNotFoundError:
            return []
        lines = [line_of(line) for line in lines if line[:19].decode() >= f"{day} {began}"]
        return [[when[:8], text] for when, _, text in lines if not OF_PROGRESS.match(text)][-MESSAGES:]

    def _last_words(self, found):
        """Returns [worker, its end, last lines on standard error] of the workers that failed by themselves, or of all that
        failed if there is none. A worker that lost another one has the status 5 or 6."""
        failed = [w for w in found.status.get("workers", []) if w["state"] not in ("ended", "starts", "runs")]
        own = [w for w in failed if not re.search(r"SIGTERM|exited with status [56]$", w["state"])]
        said = []
        for worker in own or failed:
            lines, _, _ = Log(os.path.join(self.path, f"worker-{worker['worker']}.log")).tail(None, True)
            words = []
            while lines and lines[-1][1] and len(words) < WORDS:
                words.append(lines.pop()[2])
            said.append([worker["worker"], worker["state"], words[::-1]])
        return said[:4]

    # -- the trace -----------------------------------------------------------------------------------------------------

    def _trace(self, found):
        """Returns where the job's trace is, and whether it is there."""
        path = found.status.get("trace") or trace_of(found.job)
        stamp = _stamp(path) if path else None
        return {"path": path, "ready": bool(stamp) and stamp[0] / 1e9 >= began_of(found),
                "version": f"{stamp[0]}-{stamp[1]}" if stamp else ""}

    def draw(self):
        """Returns (figure of the last steps in SVG, ""), or (None, the reason)."""
        found = Found(self.path)
        trace = self._trace(found)
        if not trace["ready"]:
            return None, "the job has written no trace"
        with self._lock:
            key, drawn = self._drawn
        if key != trace["version"]:
            drawn = figure_of(trace["path"])
            with self._lock:
                self._drawn = trace["version"], drawn
        return drawn


def kind_of(found):
    """Returns the kind of the job's state: runs, bad (slow, stopped, killed or failed), done or unknown."""
    state = found.state()
    if found.alive:
        return "bad" if state.endswith((" slow", " stopped")) else "runs"
    return "done" if state == "finished" else "unknown" if "runs on" in state or "silent" in state else "bad"


def silence(found):
    """Returns words if heturun runs and hasn't written the state for a while, or ""."""
    age = time.time() - found.status.get("written", time.time())
    return f"heturun has written no state for {duration(age)}" if found.alive and age > STALE_S else ""


def workers_of(found):
    """Returns the rows of the table of workers, with the texts of `heturun ps JOB`."""
    rows = []
    for worker, cells in zip(found.status.get("workers", []), found.workers(), strict=True):
        compute, usual = worker.get("compute_s"), worker.get("usual_s")
        phase = worker.get("phase", "")
        rows.append({
            "worker": cells[0], "host": cells[1], "pid": cells[2], "state": cells[3], "step": cells[4], "compute": cells[5],
            "memory": cells[6], "does": cells[7] or (phase if found.alive and phase != "step" else ""),
            "row": "" if worker.get("row") is None else str(worker["row"]), "compute_s": compute,
            "times": f"{compute / usual:.2f} ×" if compute and usual else ""})
    return rows


def logs_of(path):
    """Returns the names of a job's logs, heturun's last."""
    def order(name):
        return (1, 0) if name == "heturun.log" else (0, int(name[7:-4]))
    return sorted((name for name in os.listdir(path) if LOG.fullmatch(name)), key=order) if os.path.isdir(path) else []


def trace_of(job):
    """Returns the path of the trace that the command of a job names, or ""."""
    words = [str(word) for word in job.get("command", [])]
    for word, after in zip(words, [*words[1:], ""], strict=False):
        if (name := after if word == "--trace" else word.removeprefix("--trace=") if word.startswith("--trace=") else ""):
            return os.path.join(str(job.get("directory", "")), name)
    return ""


def figure_of(path):
    """Returns (SVG, "") of the last two steps of a trace, or (None, the reason)."""
    beside = os.pathsep.join([os.path.dirname(sys.executable), os.path.dirname(os.path.abspath(sys.argv[0]))])
    program = shutil.which("hetu") or shutil.which("hetu", path=beside)
    if program is None:
        return None, "the command hetu, which draws a timeline, isn't in PATH"
    try:
        with open(path, "rb") as file:  # the step of the last event
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
            steps = [int(step) for step in re.findall(rb'"step": ?(\d{1,15})', file.read())]
        first = ["--step", str(max(0, max(steps) - 1))] if steps else []
        drawn = subprocess.run([program, "timeline", path, *first, "--format", "svg"], capture_output=True, check=False,
                               stdin=subprocess.DEVNULL, timeout=DRAW_S)
    except subprocess.TimeoutExpired:
        return None, f"hetu timeline {path} took longer than {DRAW_S:g} s"
    except OSError as error:
        return None, f"{path}: {error.strerror}"
    if drawn.returncode != 0:
        return None, (drawn.stderr.decode(errors="replace").splitlines() or ["hetu timeline failed without a message"])[-1]
    return drawn.stdout, ""


def _stamp(path):
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _time(text):
    return str(text or "")[:19].replace("T", " ")

"""Progress of a run: a bar with loss, samples/s, tokens/s and ETA on a terminal, or one line every 10 s elsewhere.

A script creates one Reporter, in the worker that knows the loss. Under heturun, records go to heturun, which draws. Without
heturun, the script's own process draws.

Records are JSON objects, one per line:

    {"pid"}                          first record of a Reporter
    {"step", "total", "loss", "samples_per_s", "tokens_per_s", "extra": {name: value}}
    {"closed"}                       last record of a Reporter
    {"pid", "training": "saves"}     training begins, and Ctrl-C saves a checkpoint; "unsaved": it does not
    {"training": "over"}             training has ended
    {"mpi": "starts"}                every worker, before Open MPI starts (net/transport/mpi.cpp)
    {"mpi": "runs"}                  every worker, once Open MPI runs
    {"beat": {…}}                    with heturun --hang-limit, every worker, once a second (hetu/process/watch.py)
    {"saved": {"step", "folder"}}    one worker, after a checkpoint is complete
    {"trace": path}                  one worker, after a trace is written
    {"elastic": {…}}                 notes of a worker in a round of heturun --elastic (hetu/process/rounds.py)
    {"last_words": true}             before the line on standard error with which the worker ends
"""
import collections
import json
import os
import sys
import time

LINE_EVERY_S = 10.0
DRAW_EVERY_S = 0.1
RATE_OVER_S = 60.0  # window for the ETA's rate


def quantity(value):
    """Returns a number in few characters: 812, 4.21k, 1.05M."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def duration(seconds):
    """Returns a duration as 1:05 or 2:03:09."""
    seconds = int(round(seconds))
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Display:
    """Draws records. `stream` is a text stream; `clock` returns seconds."""

    def __init__(self, stream=None, terminal=None, clock=time.monotonic):
        self._stream = stream or sys.stderr
        self._terminal = self._stream.isatty() if terminal is None else terminal
        self._clock = clock
        self._record = None
        self._seen = collections.deque()  # (time, step)
        self._written = clock()
        self._width = 0  # of the bar on the terminal
        self._shown = None  # the last record that was written

    def show(self, record):
        """Takes a record, and draws if the interval has passed."""
        now = self._clock()
        self._record = record
        self._seen.append((now, record["step"]))
        while len(self._seen) > 2 and now - self._seen[0][0] > RATE_OVER_S:
            self._seen.popleft()
        if now - self._written >= (DRAW_EVERY_S if self._terminal else LINE_EVERY_S):
            self._write(now)

    def clear(self):
        """Removes the bar from the terminal, so that a line can be written. redraw() draws it again."""
        if self._width:
            self._put("\r" + " " * self._width + "\r")
            self._width = 0

    def redraw(self):
        if self._terminal and self._record is not None:
            self._write(self._clock())

    def close(self):
        """Draws the last state and leaves it on the terminal."""
        if self._record is not None and (self._terminal or self._shown is not self._record):
            self._write(self._clock())
            if self._terminal:
                self._put("\n")
        self._width = 0
        self._record = None

    def _put(self, text):
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:  # closed or full: training must not fail because of a bar
            self._terminal = False

    def _write(self, now):
        self._written = now
        self._shown = self._record
        if not self._terminal:
            self._put(self.text() + "\n")
            return
        import shutil  # imported late: its compression modules take longer to import than a bar

        line = self.bar(shutil.get_terminal_size().columns)
        self._put("\r" + line + " " * max(0, self._width - len(line)))
        self._width = len(line)

    def eta_s(self):
        """Returns the remaining seconds, or None if unknown."""
        first, last = self._seen[0], self._seen[-1]
        total = self._record.get("total")
        if not total or last[1] <= first[1] or last[0] <= first[0]:
            return None
        return max(0, total - last[1]) * (last[0] - first[0]) / (last[1] - first[1])

    def _parts(self):
        record = self._record
        parts = []
        if record.get("loss") is not None:
            parts.append(f"loss {record['loss']:.4f}")
        for key, unit in (("samples_per_s", "samples/s"), ("tokens_per_s", "tokens/s")):
            if record.get(key) is not None:
                parts.append(f"{quantity(record[key])} {unit}")
        for key, value in (record.get("extra") or {}).items():
            parts.append(f"{key} {quantity(value) if isinstance(value, (int, float)) else value}")
        eta = self.eta_s()
        if eta is not None:
            parts.append(f"ETA {duration(eta)}")
        return parts

    def _count(self):
        step, total = self._record["step"], self._record.get("total")
        return f"step {step}/{total}" if total else f"step {step}"

    def text(self):
        """Returns the line for output without a terminal."""
        step, total = self._record["step"], self._record.get("total")
        percent = f" ({100 * step // total} %)" if total else ""
        return f"{self._count()}{percent}: " + ", ".join(self._parts())

    def bar(self, columns):
        """Returns the bar for a terminal with this number of columns."""
        step, total = self._record["step"], self._record.get("total")
        words = "  ".join([self._count(), *self._parts()])
        room = min(30, columns - len(words) - 12)
        if not total or room < 5:
            return words[:columns - 1]
        filled = min(room, room * step // total)
        return f"{100 * step // total:3d} % [{'#' * filled}{'.' * (room - filled)}]  {words}"[:columns - 1]


class Reporter:
    """Reports the progress of `total_steps` steps (0: unknown). `fd` and `display` are for tests."""

    def __init__(self, total_steps, fd=None, display=None, clock=time.monotonic):
        self._total = total_steps
        self._clock = clock
        self._sent = None
        self._held = None
        self._fd = _inherited() if fd is None and display is None else fd
        self._display = display or (Display(clock=clock) if self._fd is None else None)
        self._send({"pid": os.getpid()})

    def update(self, step, loss=None, samples_per_s=None, tokens_per_s=None, extra=None):
        """Reports that `step` steps are done. Sends at most ten records per second, so frequent calls are cheap."""
        record = {"step": step, "total": self._total, "loss": loss, "samples_per_s": samples_per_s,
                  "tokens_per_s": tokens_per_s, "extra": extra or {}}
        now = self._clock()
        if self._sent is not None and now - self._sent < DRAW_EVERY_S:
            self._held = record
            return
        self._sent, self._held = now, None
        self._show(record)

    def close(self):
        """Shows the last record and ends the bar."""
        if self._held is not None:
            self._show(self._held)
            self._held = None
        if self._display is not None:
            self._display.close()
        self._send({"closed": True})
        self._fd = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _show(self, record):
        if self._display is not None:
            self._display.show(record)
        else:
            self._send(record)

    def _send(self, record):
        if self._fd is not None and not _write(self._fd, record):
            self._fd = None


def tell(record):
    """Sends a record to heturun. Returns true if the process runs under heturun and the record was sent."""
    fd = _inherited()
    return fd is not None and _write(fd, record)


def tell_saved(step, folder):
    """Tells heturun that the checkpoint of this step in the folder is complete. One worker of a job calls it."""
    tell({"saved": {"step": step, "folder": os.path.abspath(folder)}})


def tell_trace(path):
    """Tells heturun that a trace is written. One worker of a job calls it."""
    tell({"trace": os.path.abspath(path)})


def _write(fd, record):
    try:
        os.write(fd, json.dumps(record).encode() + b"\n")
    except OSError:  # heturun is ending; training must not fail because of a bar
        return False
    return True


def _inherited():
    """Returns the descriptor that heturun gave this process, or None without heturun."""
    from hetu import _hetu
    fd = _hetu.env()["progress_fd"]
    try:
        os.fstat(fd)
    except OSError:
        return None
    return fd

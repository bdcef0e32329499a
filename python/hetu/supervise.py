"""heturun's main loop: starts mpirun, hears every worker's guard, forwards output, and ends everything when it must.

The exit status is computed here from what the guards report, because mpirun may return 0 after a kill.
"""
import dataclasses
import json
import os
import secrets
import selectors
import shutil
import signal
import socket
import tempfile
import time

from hetu import coordinator, guard
from hetu.part import FORCE_ALL_S, Part

BLAME_WINDOW_S = 0.5  # a worker that failed because another one did may report first
FOLLOWERS = (-signal.SIGTERM, 5, 6)  # exit codes that are likely consequences: ended, Comm, Timeout
TOLD_WRONG = (2, 3)  # exit codes of a command line or a cluster that does not do, see hetu.errors
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD)


@dataclasses.dataclass
class Worker:
    """What is known of one worker."""
    number: int
    host: str = ""
    pid: int = 0
    guard: "Link | None" = None
    part: "Part | None" = None
    started: bool = False
    code: int | None = None  # exit status, or minus the signal's number
    error: str = ""

    def describe(self):
        return f"worker {self.number} ({self.host}, pid {self.pid})" if self.pid else f"worker {self.number}"

    def end(self):
        """How it ended."""
        if self.error:
            return self.error
        return f"was killed by {signal_name(-self.code)}" if self.code < 0 else f"exited with status {self.code}"

    def death(self):
        return f"{self.describe()}{':' if self.error else ''} {self.end()}"


class Link:
    """The connection of one guard."""

    def __init__(self, sock):
        self.sock = sock
        self.frames = guard.Frames()
        self.nonce = secrets.token_bytes(16)
        self.worker = None
        self.heard = time.monotonic()

    def send(self, kind, payload=b""):
        try:
            self.sock.sendall(guard.pack(kind, payload))
        except OSError:
            pass  # its end of file tells


def signal_name(number):
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class Job:
    """One job, from the start of mpirun to the exit status. A job of several parts goes on without those that fail.

    `workers` is their number; `addresses` the IPv4 addresses of this host that other hosts reach, empty for a job on
    this host alone; `timeout_s` bounds the start; `display` draws progress; `say` takes heturun's own lines.
    """

    def __init__(self, workers, addresses, timeout_s, display, say, parts=1):
        self.name = secrets.token_hex(6)
        self.token = secrets.token_hex(16)
        self.directories = []
        self._workers = [Worker(i) for i in range(workers)]
        each = workers // parts
        self._parts = [Part(i, self._workers[i * each:(i + 1) * each]) for i in range(parts)]
        self._timeout_s = timeout_s
        self._display = display
        self._say_line = say
        self._selector = selectors.DefaultSelector()
        self._links = []
        self._remote = bool(addresses)
        self._listener, self.address = self._listen(addresses)
        self._coordinator = coordinator.Coordinator(None if addresses else self.directories[0], addresses)
        self._coordinator_lines = guard.Lines()
        self._statuses = {}
        self._reporter = None  # the worker whose progress is drawn
        self._ended_at = None  # when the end was decided
        self._code = None
        self._forced = False  # everything here was killed

    # -- set-up --------------------------------------------------------------------------------------------------------

    def make_directory(self, parent):
        """A new directory of this job, removed at its end."""
        path = tempfile.mkdtemp(prefix=f"hetu-{self.name}-", dir=parent)
        self.directories.append(path)
        return path

    def _listen(self, addresses):
        if addresses:
            listener = socket.create_server(("0.0.0.0", 0), backlog=1024)
            port = listener.getsockname()[1]
            address = "tcp:" + ",".join(f"{a}:{port}" for a in addresses)
        else:
            # Open MPI builds socket names of its own below this directory: at most 108 bytes in all.
            parent = tempfile.gettempdir()
            parent = parent if len(parent) < 40 and ":" not in parent else "/tmp"
            path = os.path.join(self.make_directory(parent), "heturun")
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(path)
            listener.listen(1024)
            address = "unix:" + path
        listener.setblocking(False)
        return listener, address

    def close(self):
        """Ends what is left of the job on this host and removes its directories."""
        self._coordinator.close()
        guard.kill_descendants(self._statuses)
        for link in self._links:
            link.sock.close()
        self._listener.close()
        self._selector.close()
        for path in self.directories:
            shutil.rmtree(path, ignore_errors=True)

    # -- the loop ------------------------------------------------------------------------------------------------------

    def run(self, commands):
        """Runs an mpirun per part, `commands` being their (arguments, environment), to the end of the job; returns the exit
        status."""
        guard.adopt_orphans()
        wakeup, wakeup_end = os.pipe()
        for descriptor in (wakeup, wakeup_end):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(wakeup_end, warn_on_full_buffer=False)
        for number in SIGNALS:
            signal.signal(number, lambda *_: None)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(wakeup, selectors.EVENT_READ, lambda: self._take_signals(wakeup))
        self._await_coordinator()
        for part, (argv, environment) in zip(self._parts, commands, strict=True):
            more = dict(environment, HETU_JOB=self.name, HETU_CONTROL_TOKEN=self.token,
                        HETU_PATH=environment.get("PATH", ""), HETU_COORDINATOR=self._coordinator.address)
            for number, stream in part.start(argv, more):
                self._selector.register(stream, selectors.EVENT_READ, lambda part=part, number=number, stream=stream:
                                        part.take(number, stream) or self._selector.unregister(stream))
        self._started = self._looked = time.monotonic()
        while not self._done():
            for key, _ in self._selector.select(timeout=0.1 if self._busy() else 1.0):
                key.data()
            guard.reap(self._statuses)
            self._tick(time.monotonic())
        self._display.close()
        self._show_mpirun()
        return self._code

    def _busy(self):
        return self._ended_at is not None or any(
            part.failed_at is not None or part.process.pid in self._statuses for part in self._parts)

    def _done(self):
        if self._code is None or any(part.process.pid not in self._statuses for part in self._parts):
            return False
        return self._forced or (not self._links and all(part.ended(self._statuses) for part in self._parts))

    def _take_signals(self, wakeup):
        for number in os.read(wakeup, 4096):
            if number == signal.SIGUSR1:
                self._say(f"SIGUSR1 handed to {len(self._workers)} workers: checkpoint and exit")
                self._signal_workers(number)
            elif number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if self._ended_at is not None and self._code == 128 + number:
                    self._signal_workers(signal.SIGKILL)  # asked twice: at once
                else:
                    self._end(128 + number, f"{signal_name(number)}: ending {self._others()}")

    def _accept(self):
        try:
            sock, _ = self._listener.accept()
        except BlockingIOError:
            return
        sock.setblocking(True)
        sock.settimeout(self._timeout_s)
        link = Link(sock)
        self._links.append(link)
        self._selector.register(sock, selectors.EVENT_READ, lambda: self._take_link(link))
        link.send(guard.NONCE, link.nonce)

    def _take_link(self, link):
        try:
            data = link.sock.recv(1 << 18)
        except OSError:
            data = b""
        link.heard = time.monotonic()
        try:
            for kind, payload in link.frames.feed(data):
                self._take_frame(link, kind, payload)
        except (ValueError, KeyError, TypeError):
            data = b""  # not a guard
        if not data:
            self._drop(link)

    def _drop(self, link):
        if link not in self._links:
            return
        self._selector.unregister(link.sock)
        link.sock.close()
        self._links.remove(link)
        worker = link.worker
        if worker is not None and worker.code is None:
            worker.code = -signal.SIGKILL
            worker.error = "is gone without a word: its guard was killed or its host is lost"
            worker.part.note_failure()
            self._tell_coordinator(worker)

    def _take_frame(self, link, kind, payload):
        if kind == guard.HELLO:
            self._take_hello(link, json.loads(payload))
            return
        worker = link.worker
        if worker is None:
            raise ValueError("a frame before hello")
        if kind in (guard.OUT, guard.ERR):
            self._forward(f"[w{worker.number}] ".encode(), 1 if kind == guard.OUT else 2, payload)
        elif kind == guard.STARTED:
            worker.pid, worker.started = int(json.loads(payload)["pid"]), True
        elif kind == guard.PROGRESS:
            self._take_progress(worker, json.loads(payload))
        elif kind == guard.EXIT:
            report = json.loads(payload)
            worker.code, worker.error, worker.started = int(report["code"]), report["error"], True
            if worker.code != 0:
                worker.part.note_failure()
                self._tell_coordinator(worker)

    def _take_hello(self, link, hello):
        number = int(hello["worker"])
        proved = secrets.compare_digest(str(hello["proof"]), guard.proof(self.token, link.nonce, number))
        if not proved or not 0 <= number < len(self._workers) or self._workers[number].guard is not None:
            raise ValueError("not a guard of this job")
        worker = self._workers[number]
        worker.host, worker.guard, link.worker = str(hello["host"]), link, worker
        if hello["protocol"] != guard.PROTOCOL:
            worker.code = 1
            worker.error = (f"its host {worker.host} has another version of Hetu (protocol {hello['protocol']}, here "
                            f"{guard.PROTOCOL}); install the same on all hosts")
            worker.part.note_failure()
        if self._ended_at is not None or worker.part.lost_at is not None:
            link.send(guard.SIGNAL, b"15")

    def _take_progress(self, worker, record):
        if self._reporter is None and "step" in record:
            self._reporter = worker
        if worker is not self._reporter:
            return
        if "step" in record:
            self._display.show(record)
        elif record.get("closed"):
            self._display.close()
            self._reporter = None

    # -- the coordinator -----------------------------------------------------------------------------------------------

    def _await_coordinator(self):
        """Its process starts when somebody connects; nobody can in a build without ZeroMQ."""
        if not self._coordinator.address:
            return
        listener = self._coordinator.listener
        self._selector.register(listener, selectors.EVENT_READ, self._start_coordinator)

    def _start_coordinator(self):
        self._selector.unregister(self._coordinator.listener)
        if self._ended_at is not None:
            return
        self._coordinator.start()
        for worker in self._workers:
            self._tell_coordinator(worker)
        for part in self._parts:
            if part.lost_at is not None:
                self._coordinator.tell_pipeline(part.number, "died before the coordinator was asked for")
        stream = self._coordinator.process.stderr
        self._selector.register(stream, selectors.EVENT_READ, lambda: self._take_coordinator(stream))

    def _tell_coordinator(self, worker):
        if worker.code:
            self._coordinator.tell(worker.number, worker.end())

    def _take_coordinator(self, stream):
        data = os.read(stream.fileno(), 65536)
        if not data:
            self._selector.unregister(stream)
        text = self._coordinator_lines.feed(data) if data else self._coordinator_lines.flush()
        if text:
            self._forward(b"", 2, text)

    def _check_coordinator(self):
        """Its death is the job's; its end in order, when all workers have left it, is not."""
        process = self._coordinator.process
        if process is None or process.pid not in self._statuses or process.stderr in self._open_streams():
            return
        status = os.waitstatus_to_exitcode(self._statuses.pop(process.pid))
        self._coordinator.forget()
        if status == 0:
            self._await_coordinator()
        elif status < 0 or all(part.failed_at is None or part.lost_at for part in self._parts):  # else it ended for a worker
            how = f"was killed by {signal_name(-status)}" if status < 0 else f"exited with status {status}"
            self._end(128 - status if status < 0 else status,
                      f"the coordinator (pid {process.pid}) {how}; ending the other {self._others()}")

    def _open_streams(self):
        return [key.fileobj for key in self._selector.get_map().values()]

    # -- output --------------------------------------------------------------------------------------------------------

    def _say(self, text):
        self._display.clear()
        self._say_line(text)
        self._display.redraw()

    def _forward(self, prefix, descriptor, text):
        lines = text.split(b"\n")
        if lines[-1] == b"":
            lines.pop()
        self._display.clear()
        try:
            write_all(descriptor, b"".join(prefix + line + b"\n" for line in lines))
        except BrokenPipeError:
            self._end(128 + signal.SIGPIPE, "")
        self._display.redraw()

    def _show_mpirun(self):
        for part in self._parts:
            for number, text in part.text():
                self._forward(b"[mpirun] ", number, text)

    # -- the end -------------------------------------------------------------------------------------------------------

    def _others(self):
        left = sum(worker.code is None for worker in self._workers)
        return f"{left} worker{'s' if left != 1 else ''}"

    def _signal_workers(self, number):
        for link in self._links:
            if link.worker is not None and link.worker.code is None:
                link.send(guard.SIGNAL, str(int(number)).encode())

    def _end(self, code, text):
        if self._ended_at is not None:
            return
        self._ended_at, self._code = time.monotonic(), code
        if text:
            self._say(text)
        self._signal_workers(signal.SIGTERM)

    def _fail(self, part, code, text):
        """Ends the job, or goes on without this part while there is another; not if it was told what is wrong, for then the
        others were told the same."""
        if code in TOLD_WRONG or all(other is part or other.lost_at is not None for other in self._parts):
            left = sum(w.code is None for w in self._workers)
            self._end(code, text + (f"; ending the other {self._others()}" if left else ""))
            return
        part.lost_at = time.monotonic()
        part.loss = text
        if self._reporter is not None and self._reporter.part is part:
            self._display.close()
            self._reporter = None
        self._say(f"{text}; the job goes on without pipeline {part.number}")
        self._coordinator.tell_pipeline(part.number, f"is lost: {text}")
        for worker in part.workers:
            if worker.guard is not None and worker.code is None:
                worker.guard.send(guard.SIGNAL, b"15")

    def _blame(self, part, now):
        """Lets a part fail by the worker that failed first, past those that failed because of it."""
        failed = [worker for worker in part.workers if worker.code]
        causes = [worker for worker in failed if worker.code not in FOLLOWERS]
        # All failed because of another: of the coordinator, if there is one, whose end is seen a moment later.
        untold = len(failed) < len(part.workers) or self._coordinator.process is not None
        if not causes and now - part.failed_at < BLAME_WINDOW_S and untold:
            return
        worker = (causes or failed)[0]
        self._fail(part, worker.code if worker.code > 0 else 128 - worker.code, worker.death())

    def _tick(self, now):
        if self._ended_at is None:
            self._check_coordinator()
        for part in self._parts:
            if part.failed_at is not None and part.lost_at is None and self._ended_at is None:
                self._blame(part, now)
        if self._ended_at is None:
            self._check_end(now)
        self._press(now)
        if self._remote:
            self._check_beats(now)
        self._looked = now

    def _check_end(self, now):
        living = [part for part in self._parts if part.lost_at is None]
        if all(worker.code == 0 for part in living for worker in part.workers):
            self._ended_at, self._code = now, 0
            for part in self._parts:
                if part.lost_at is not None:
                    self._say(f"finished without pipeline {part.number}: {part.loss}")
            return
        for part in living:
            if part.ended(self._statuses) and not part.failed_at and not any(w.guard in self._links for w in part.workers):
                self._mpirun_ended(part)
        if self._ended_at is None and now - self._started > self._timeout_s:
            missing = [str(w.number) for part in living for w in part.workers if not w.started]
            if missing:
                self._show_mpirun()
                self._end(6, f"workers {', '.join(missing)} did not start in {self._timeout_s:g} s (HETU_TIMEOUT)")

    def _mpirun_ended(self, part):
        missing = [str(w.number) for w in part.workers if w.code is None]
        if not missing:
            return
        status = os.waitstatus_to_exitcode(self._statuses[part.process.pid])
        how = f"was killed by {signal_name(-status)}" if status < 0 else f"ended with status {status}"
        self._show_mpirun()
        text = f"mpirun {how} before worker{'s' * (len(missing) > 1)} {', '.join(missing)} ended"
        code = 128 - status if status < 0 else status or 1
        if len(self._parts) == 1:
            self._end(code, text)
        else:
            self._fail(part, code, text)

    def _press(self, now):
        """Ends mpirun, and then everything here, when it does not end by itself."""
        over = False
        for part in self._parts:
            since = self._ended_at if self._ended_at is not None else part.lost_at
            if since is not None and part.press(since, now, self._statuses):
                over = True
        if self._ended_at is not None and not self._forced and (over or now - self._ended_at > FORCE_ALL_S):
            everyone_ended = all(part.process.pid in self._statuses for part in self._parts)
            self._forced = True
            if not everyone_ended:
                guard.kill_descendants(self._statuses)
        elif over:
            for part in self._parts:
                if part.lost_at is not None and part.process.pid not in self._statuses:
                    part.process.kill()

    def _check_beats(self, now):
        if now - self._looked > 2.0:  # stopped or blocked in between: no blame on the guards
            for link in self._links:
                link.heard = now
        for link in list(self._links):
            if now - link.heard > guard.DEAD_S:
                self._drop(link)
            else:
                link.send(guard.BEAT)


def write_all(descriptor, data):
    """Writes all of it, also where the other end is not blocking."""
    while data:
        try:
            data = data[os.write(descriptor, data):]
        except BlockingIOError:
            time.sleep(0.01)

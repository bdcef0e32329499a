"""The guard of one worker. mpirun starts it; it starts the worker's command and watches it.

The guard sends whole lines of output, progress records and the exit status to heturun over one socket, and forwards
signals. It ends the command with all its descendants when heturun, mpirun or the guard's host asks for it, or when heturun
or mpirun is gone. It runs as `python3 -I -S run_guard.py ADDRESS DIRECTORIES command...`. Therefore it uses only the
standard library, frames.py, processes.py, folders.py and last_words.py.
"""
import contextlib
import hashlib
import hmac
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time

from hetu.launch import folders, last_words, processes
from hetu.launch.frames import (
    ERR,
    EXIT,
    HEARTBEAT,
    HELLO,
    NONCE,
    OUT,
    PROGRESS,
    PROTOCOL,
    SIGNAL,
    STARTED,
    STOPPED,
    TOLD,
    Frames,
    Lines,
    pack,
)

HELD_S = 10.0  # then a line reports that no process handles the signal yet
TERM_GRACE_S = 3.0  # from SIGTERM to SIGKILL
HEARTBEAT_S = 1.0
# Silence after which a peer counts as dead; a lost host sends no end of file. Leaves 3 s of the 10 for the
# report.
DEAD_S = 7.0
CONNECT_S = 30.0
GREETING_S = 2.0  # for an answer from a busy heturun
ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL)
COMM, TIMEOUT = 5, 6  # exit statuses as in hetu.process.errors, which the launcher doesn't import
GRACE_S = 0.5  # from SIGTERM to SIGKILL, for processes that an ended worker leaves behind
# Longest wait of a worker that has lost another one, so that this one can end by itself and be reported.
LINGER_S = GRACE_S + 1.0


def proof(token, nonce, worker):
    """Returns the proof that a guard knows the job's secret."""
    return hmac.new(token.encode(), nonce + str(worker).encode(), hashlib.sha256).hexdigest()


def connect(address):
    """Returns a socket to heturun: `unix:PATH` or `tcp:IP:PORT,IP:PORT` (the first address that answers)."""
    kind, _, rest = address.partition(":")
    if kind == "unix":
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(rest)
        return sock
    last = None
    for place in rest.split(","):
        host, _, port = place.rpartition(":")
        try:
            return socket.create_connection((host, int(port)), timeout=5)
        except OSError as error:
            last = error
    raise OSError(f"heturun does not answer at {rest}: {last}")


class Guard:
    """One worker's command, from start to exit status."""

    def __init__(self, address, directories, command):
        self.address = address
        self.remote = not address.startswith("unix:")
        self.directories = directories
        self.locks = folders.hold(directories)
        self.command = command
        self.worker = int(os.environ.get("OMPI_COMM_WORLD_RANK", "0")) + int(os.environ.get("HETU_FIRST_WORKER", "0"))
        self.sock = connect(address)
        self.frames = Frames()
        self.parent = os.getppid()
        self.statuses = {}
        self.child = None
        self.target = None  # the process that receives SIGUSR1: the command, or a process that registered itself
        self.held = {}  # signals that no process handles yet: {number: time of arrival}
        self.blocking = set()  # (pid, number) of processes that blocked a signal at the last check
        self.kill_at = None
        self.lost = False  # heturun is gone
        self.orphaned = False  # mpirun is gone
        self.told = False  # mpirun ends this worker, and heturun is informed
        self.ending = False  # heturun or mpirun ends this worker
        self.unsaid = last_words.Held()  # last lines of standard error
        self.memory_kills = processes.memory_kills()
        self.stop_watch = processes.StopWatch()
        self.reported = set()  # stopped processes that were reported to heturun
        self.heard = self.heartbeat = self.looked = time.monotonic()

    def send(self, kind, payload=b""):
        if not self.lost:
            try:
                self.sock.sendall(pack(kind, payload))
            except OSError:
                self.lose()

    def lose(self):
        self.lost = True
        self.end(signal.SIGTERM)

    def hello(self):
        self.sock.settimeout(CONNECT_S)
        nonce = None
        while nonce is None:
            data = self.sock.recv(4096)
            if not data:
                raise OSError("heturun closed the connection")
            for kind, payload in self.frames.feed(data):
                if kind == NONCE:  # heartbeats may follow it
                    nonce = payload
        self.sock.settimeout(None)
        token = os.environ.pop("HETU_CONTROL_TOKEN", "")
        self.send(HELLO, {"worker": self.worker, "host": socket.gethostname(), "protocol": PROTOCOL, "pid": os.getpid(),
                          "proof": proof(token, nonce, self.worker)})

    def start(self, wakeup):
        """Starts the command. Returns its streams as {file descriptor: (frame kind, lines)}."""
        progress, progress_end = os.pipe()
        environment = dict(os.environ, HETU_PROGRESS_FD=str(progress_end))
        # Mpirun puts its own folder first in PATH, and with it another python3. LD_PRELOAD is only for mpirun.
        for name in ("PATH", "LD_PRELOAD"):
            environment[name] = environment.pop(f"HETU_{name}", environment.get(name, ""))
        me = os.getpid()
        self.child = subprocess.Popen(
            self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=environment, pass_fds=[progress_end, *self.locks], start_new_session=True,
            preexec_fn=lambda: processes.die_with_parent(signal.SIGKILL, me))
        os.close(progress_end)
        self.target = self.child.pid
        self.send(STARTED, {"pid": self.child.pid})
        streams = {self.child.stdout.fileno(): (OUT, Lines(b"")), self.child.stderr.fileno(): (ERR, Lines(b"")),
                   progress: (PROGRESS, Lines())}
        for descriptor in (*streams, wakeup):
            os.set_blocking(descriptor, False)
        return streams

    def end(self, number):
        """Sends a signal to the command's group. SIGKILL follows if the command does not end."""
        if self.child is None or self.child.pid in self.statuses:
            return
        processes.signal_to(os.killpg, self.child.pid, number)
        if number == signal.SIGKILL:
            for pid in processes.descendants(os.getpid()):
                processes.signal_to(os.kill, pid, signal.SIGKILL)
        elif self.kill_at is None:
            self.kill_at = time.monotonic() + TERM_GRACE_S

    def take_signal(self, number):
        if number in (signal.SIGUSR1, signal.SIGUSR2):
            self.held.setdefault(number, time.monotonic())
        elif number in ENDS:
            self.ending = True
            if self.remote:  # a stopped daemon could not end
                processes.signal_to(os.kill, self.parent, signal.SIGCONT)
            self.end(number if number == signal.SIGKILL else signal.SIGTERM)

    def take_signals(self, wakeup):
        """Handles signals to the guard itself. mpirun's SIGTERM is reported at once, because its SIGKILL does not always
        wait until the worker has ended."""
        with contextlib.suppress(BlockingIOError):
            for number in os.read(wakeup, 4096):
                self.take_signal(number)
                if number == signal.SIGTERM and not self.told:
                    self.told = True
                    self.send(TOLD)

    def hand_on(self):
        """Delivers held signals to the first process that handles them. Until a script has installed its handler, such a
        signal would kill it. A signal that is blocked at two checks is handled by other means than a handler, so it is
        delivered too."""
        if self.child is None or self.child.pid in self.statuses:
            return
        blocking = set()
        for number, since in list(self.held.items()):
            for pid in dict.fromkeys((self.target, self.child.pid, *processes.descendants(self.child.pid))):
                handled, blocked = processes.ways_of(pid, number)
                if handled or (blocked and (pid, number) in self.blocking):
                    processes.signal_to(os.kill, pid, number)
                    del self.held[number]
                    break
                if blocked:
                    blocking.add((pid, number))
            else:
                if since is not None and time.monotonic() - since > HELD_S:
                    self.held[number] = None
                    name = signal.Signals(number).name
                    self.send(ERR, f"heturun: {name} is held: no process of this worker has a handler for it yet\n".encode())
        self.blocking = blocking

    def take_frames(self):
        try:
            data = self.sock.recv(65536)
        except OSError:
            data = b""
        if not data:
            self.lose()
            return
        self.heard = time.monotonic()
        for kind, payload in self.frames.feed(data):
            if kind == SIGNAL:
                self.take_signal(int(payload))

    def forward(self, kind, text):
        if kind != PROGRESS:
            if text := self.unsaid.feed(text, time.monotonic()) if kind == ERR else text:
                self.send(kind, text)
            return
        for line in text.splitlines():
            try:
                record = json.loads(line)
                if "pid" in record:
                    self.target = int(record["pid"])
                if "last_words" in record:
                    self.unsaid.announce(time.monotonic())
                    continue
            except (ValueError, TypeError):
                continue
            self.send(PROGRESS, line)

    def take_announcements(self, streams):
        """Forwards the progress records that were sent before the data that have just been read from another stream."""
        for descriptor, (kind, lines) in streams.items():
            if kind == PROGRESS:
                with contextlib.suppress(BlockingIOError):
                    self.forward(kind, lines.feed(os.read(descriptor, 65536)))  # reads everything that a pipe holds

    def take_output(self, streams, descriptor):
        """Forwards a stream's data, and removes the stream at its end. Returns true if it is still open."""
        kind, lines = streams[descriptor]
        try:
            data = os.read(descriptor, 65536)
        except BlockingIOError:
            return True
        if kind == ERR:
            self.take_announcements(streams)
        self.forward(kind, lines.feed(data) if data else lines.flush())
        if not data:
            del streams[descriptor]
        return bool(data)

    def tick(self):
        now = time.monotonic()
        if text := self.unsaid.due(now):
            self.send(ERR, text)
        if self.kill_at is not None and now >= self.kill_at:
            self.end(signal.SIGKILL)
            self.kill_at = now + TERM_GRACE_S
        if os.getppid() != self.parent and not self.orphaned:  # mpirun is gone; heturun and other pipelines may still run
            self.orphaned = True
            self.end(signal.SIGTERM)
        if now - self.looked > processes.PAUSE_S:
            self.heard = now
        self.looked = now
        if now - self.heartbeat >= HEARTBEAT_S:
            self.heartbeat = now
            self.report_stopped(now)
            if self.remote:
                self.send(HEARTBEAT)
                if now - self.heard > DEAD_S:
                    self.lose()

    def report_stopped(self, now):
        """Reports to heturun that a signal has stopped the worker, or Open MPI's daemon on another host, and when the
        process runs again. heturun itself watches mpirun on its own host."""
        watched = {self.child.pid: "worker", self.target: "worker"}
        if self.remote:
            watched[self.parent] = "daemon"
        stopped = set(self.stop_watch.stay_stopped(watched, now))
        for pid in stopped - self.reported:
            self.send(STOPPED, {"pid": pid, "what": watched[pid]})
        for pid in self.reported - stopped:
            if processes.runs(pid):  # it may also have ended, which is reported otherwise
                self.send(STOPPED, {"pid": pid, "what": watched[pid], "resumed": True})
        self.reported = stopped

    def watch(self, streams, wakeup):
        """Serves all streams until the command has ended."""
        with selectors.DefaultSelector() as selector:
            for descriptor in (*streams, wakeup, self.sock):
                selector.register(descriptor, selectors.EVENT_READ)
            while self.child.pid not in self.statuses:
                waits = self.kill_at is None and not self.held
                for key, _ in selector.select(timeout=HEARTBEAT_S if waits else 0.1):
                    if key.fileobj is self.sock:
                        self.take_frames()
                        if self.lost:
                            selector.unregister(self.sock)
                    elif key.fd == wakeup:
                        self.take_signals(wakeup)
                    elif not self.take_output(streams, key.fd):
                        selector.unregister(key.fd)
                processes.reap(self.statuses)
                self.hand_on()
                self.tick()

    def finish(self, streams, wakeup):
        """Ends the processes that the command left behind, forwards the rest of its output, and reports. Returns the exit
        status."""
        processes.kill_descendants(self.statuses, grace_s=GRACE_S)
        patience_s = 2.0  # for streams that other processes hold open; heturun may take any time to accept the data
        while streams and patience_s > 0:
            self.take_signals(wakeup)
            for descriptor in list(streams):
                self.take_output(streams, descriptor)
            time.sleep(0.005)
            patience_s -= 0.005
        self.take_signals(wakeup)
        return self.report(os.waitstatus_to_exitcode(self.statuses[self.child.pid]))

    def end_daemon(self):
        """Ends Open MPI's daemon on this host, which does not notice the loss of heturun's host. The last guard on the host
        does it, so that each guard ends its own command first."""
        def name(pid):
            try:
                with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
                    return file.read().strip()
            except OSError:
                return ""
        if name(self.parent) not in ("orted", "prted"):
            return
        patience = time.monotonic() + 2 * TERM_GRACE_S
        while set(processes.children(self.parent)) - {os.getpid()} and time.monotonic() < patience:
            time.sleep(0.05)
        for number in (signal.SIGTERM, signal.SIGKILL):
            if os.getppid() == self.parent:
                processes.signal_to(os.kill, self.parent, number)
            patience = time.monotonic() + 1.0
            while os.getppid() == self.parent and time.monotonic() < patience:
                time.sleep(0.05)

    def remove_directories(self):
        """Removes the job's folders, unless heturun is alive and has only dropped this guard; then others use them. heturun
        greets every peer that connects. A dying heturun still accepts connections for a moment, but does not greet."""
        try:
            with connect(self.address) as sock:
                sock.settimeout(GREETING_S)
                lives = bool(sock.recv(1))
        except TimeoutError:
            lives = True
        except OSError:
            lives = False
        if not lives:
            folders.remove(self.directories)

    def linger(self):
        """Waits before this worker's end is visible to mpirun, which ends all workers after the first failure. The worker
        that this one has lost may still be about to end by itself, with a more specific status and message. Waits until
        heturun has decided, which it reports by a signal, and at most LINGER_S."""
        until = time.monotonic() + LINGER_S
        with contextlib.suppress(OSError):
            while not (self.lost or self.ending) and (left := until - time.monotonic()) > 0:
                self.sock.settimeout(left)
                data = self.sock.recv(4096)
                self.lost = not data
                for kind, payload in self.frames.feed(data):
                    self.ending = self.ending or (kind == SIGNAL and int(payload) in ENDS)

    def report(self, code, error=""):
        words = self.unsaid.take()
        if code == 0 and words:
            self.send(ERR, words)
            words = b""
        if code == -signal.SIGKILL and processes.memory_kills() > self.memory_kills:
            error = "was killed by SIGKILL: the system has killed processes, because memory ran out"
        self.send(EXIT, {"code": code, "error": error, "words": words.decode(errors="backslashreplace")})
        if code in (COMM, TIMEOUT):
            self.linger()
        if self.lost and self.remote:
            self.end_daemon()
        elif self.lost:
            self.remove_directories()
        else:
            try:  # closing with unread input could drop the report
                self.sock.shutdown(socket.SHUT_WR)
                self.sock.settimeout(2.0)
                while self.sock.recv(4096):
                    pass
            except OSError:
                pass
        return code if code >= 0 else 128 - code


def main(argv, held_back):
    """Runs the guard. `held_back` holds blocked signals, which are handled from here on."""
    address, directories, command = argv[0], argv[1].split(":") if argv[1] else [], argv[2:]
    wakeup, wakeup_end = os.pipe()
    os.set_blocking(wakeup_end, False)
    signal.set_wakeup_fd(wakeup_end, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, held_back)
    processes.adopt_orphans()
    try:
        guard = Guard(address, directories, command)
        guard.hello()
    except OSError as error:
        print(f"heturun's guard on {socket.gethostname()}: {error}", file=sys.stderr)
        return 1
    try:
        streams = guard.start(wakeup)
    except OSError as error:
        code = 127 if isinstance(error, FileNotFoundError) else 126
        return guard.report(code, f"cannot start '{command[0]}': {error.strerror}")
    guard.watch(streams, wakeup)
    return guard.finish(streams, wakeup)

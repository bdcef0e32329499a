"""Processes in addition to the workers. Each has a listening socket from the start, and its process starts when a worker
connects. A job whose workers never connect costs only a socket. heturun and keepers use it, in loops whose selectors hold
functions to call.

Such a process is `python3 -m hetu.launch.MODULE`. It inherits the socket. From standard input it reads its keys and
heturun's observations about workers. It ends at the end of this input.
"""
import errno
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import NamedTuple

from hetu.launch import frames, processes

FAREWELL_S = 2.0  # time to end by itself after the job
MOST_RESTARTS, MOST_IN_VAIN, IN_VAIN_S = 100, 3, 10.0


class Restarts:
    """Decides if a killed process is restarted: at most MOST_RESTARTS times, and at most MOST_IN_VAIN times within
    IN_VAIN_S unless it made progress in between."""

    def __init__(self):
        self.count = 0
        self._in_vain = []

    def note_progress(self):
        self._in_vain.clear()

    def refusal(self, now):
        """Returns the reason against a restart, as text for people. "" allows and counts the restart."""
        self._in_vain = [then for then in self._in_vain if now - then < IN_VAIN_S]
        if len(self._in_vain) >= MOST_IN_VAIN:
            return f"{len(self._in_vain) + 1} times within {IN_VAIN_S:g} s"
        if self.count >= MOST_RESTARTS:
            return f"after {self.count} restarts"
        self.count += 1
        self._in_vain.append(now)
        return ""


class Socket(NamedTuple):
    """A listening socket, its endpoint for the process, and its endpoints for clients (separated by ",")."""
    listener: socket.socket
    endpoint: str
    endpoints: str


def listen(name, place, addresses):
    """Returns the socket of a service: in the folder `place` or, if that is None, on this host's IPv4 `addresses`. `name`
    is for people. Raises OSError."""
    if place is not None:
        path = os.path.join(place, name.replace(" ", "-"))
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen(1024)
        return Socket(listener, f"ipc://{path}", f"ipc://{path}")
    host = addresses[0] if len(addresses) == 1 else "0.0.0.0"
    try:
        listener = socket.create_server((host, 0), backlog=1024)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise OSError(f"no TCP port is left for the {name} on {host}; free some, or widen "
                      "/proc/sys/net/ipv4/ip_local_port_range") from None
    port = listener.getsockname()[1]
    return Socket(listener, f"tcp://{host}:{port}", ",".join(f"tcp://{address}:{port}" for address in addresses))


class Events(NamedTuple):
    """Events of a service. asked(service): a client has connected to the awaited socket. said(service, descriptor, text):
    whole lines of output. ended(service, pid, status): the exit status, or minus the signal's number, after all output was
    delivered."""
    asked: Callable
    said: Callable
    ended: Callable


class Service:
    """A service on this host. `command` is a module of hetu.launch and its arguments. `environment` is the environment of
    its process."""

    host = ""  # heturun runs it itself

    def __init__(self, name, command, where, environment, selector, events):
        self.name = name
        module, *arguments = command
        self._words = [sys.executable, "-m", f"hetu.launch.{module}", where.endpoint, str(where.listener.fileno()),
                       *map(str, arguments)]
        self._environment = environment
        self._listener = where.listener
        self._selector, self._events = selector, events
        self._process = None
        self._open = 0  # number of open streams, of two
        self._stop_watch = processes.StopWatch()

    @property
    def runs(self):
        return self._process is not None

    def listen(self):
        """Waits for a client to connect."""
        self._selector.register(self._listener, selectors.EVENT_READ, self._ask)

    def _ask(self):
        self._selector.unregister(self._listener)
        self._events.asked(self)

    def start(self, keys):
        """Starts the process on the socket. Its input is not buffered: buffered data would be written after its end is
        known, which fails."""
        self._process = subprocess.Popen(
            self._words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
            pass_fds=[self._listener.fileno()], start_new_session=True, env=self._environment)
        self.tell(json.dumps({name: keys[name] for name in ("server_secret", "worker_public")}))
        for descriptor, stream in ((1, self._process.stdout), (2, self._process.stderr)):
            self._open += 1
            self._selector.register(stream, selectors.EVENT_READ, self._reader(descriptor, stream, frames.Lines()))

    def _reader(self, descriptor, stream, lines):
        def read():
            data = os.read(stream.fileno(), 65536)
            if not data:
                self._selector.unregister(stream)
                self._open -= 1
            if text := lines.feed(data) if data else lines.flush():
                self._events.said(self, descriptor, text)
        return read

    def tell(self, line):
        """Sends an observation of heturun to the process, if it runs."""
        if self._process is None:
            return
        try:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            pass  # its end is noticed by its exit status

    def check(self, statuses, now):
        """Takes the process's end from {pid: wait status}. Call it every second. The socket stays open for the next
        process. Kills a process that a signal has stopped, so that it is handled like any killed process."""
        if self._process is None:
            return
        if self._stop_watch.stay_stopped([self._process.pid], now):
            self._events.said(self, 2, f"heturun: the {self.name} (pid {self._process.pid}) is stopped by a signal such as "
                                       "SIGSTOP; it is killed\n".encode())
            self._process.kill()
        if self._open or self._process.pid not in statuses:
            return
        pid = self._process.pid
        self._close_streams()
        self._process = None
        self._events.ended(self, pid, os.waitstatus_to_exitcode(statuses.pop(pid)))

    def _close_streams(self):
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            stream.close()

    def dismiss(self):
        """Closes the socket, and asks the process to end."""
        self._listener.close()
        if self._process is not None:
            self._process.stdin.close()

    def close(self):
        """Waits for the process's end after dismiss(), and kills it if necessary."""
        if self._process is None:
            return
        try:
            self._process.wait(FAREWELL_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._close_streams()


def serve(name, work):
    """Runs the process's side: calls work(server_secret, worker_public), which serves the job until standard input ends.
    Returns the exit status."""
    from hetu import _hetu

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    with os.fdopen(os.dup(0), "rb", buffering=0) as control:
        line = b""
        while not line.endswith(b"\n"):  # reads no byte beyond the line: the rest is for the loop in C++
            byte = control.read(1)
            if not byte:
                return 0
            line += byte
    keys = json.loads(line)
    try:
        work(keys["server_secret"], keys["worker_public"])
    except (_hetu.CommError, OSError, RuntimeError) as error:
        sys.stderr.write(f"{name}: {' '.join(str(error).split())}\n")
        return 4 if isinstance(error, OSError) and not isinstance(error, _hetu.CommError) else 5
    return 0

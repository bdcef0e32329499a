"""heturun's end of the connection to keeper.py: the parameter servers of one host, with the interface of services.py."""
import json
import os
import secrets
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from hetu.launch import frames, guard, keeper, processes, remote
from hetu.launch.part import ending

START_S = remote.CONNECT_S + remote.ANSWER_S
SILENT_S = 3 * guard.HEARTBEAT_S  # silence after which it may be dead
FAREWELL_S = 5.0  # time for a keeper to end its servers after the job
LONGEST_ERROR = 4 << 10  # limit for stored messages of ssh


class Way(NamedTuple):
    """Connection data of keepers: the names that refer to this host, the ssh key for other hosts, the interface or network
    between them, and the environment of servers."""
    own: frozenset = frozenset()
    key: str | None = None
    interface: str | None = None
    environment: Mapping = MappingProxyType({})


class Events(NamedTuple):
    """Events of a keeper. ready(keeper, removed): it listens for all its servers, and has removed these folders.
    lost(keeper, status, reason): it has ended; `reason` is text for people. servers: the service.Events of its servers."""
    ready: Callable
    lost: Callable
    servers: tuple


class Kept:
    """A parameter server that a keeper starts. It shares the interface of service.Service."""

    def __init__(self, number, its):
        self.name, self.host = f"server {number}", its.host
        self.endpoints = ""  # known once the keeper is ready
        self.runs = False
        self.number = number
        self._keeper = its

    def listen(self):
        self._keeper.send(keeper.AWAIT, str(self.number).encode())

    def start(self, keys):
        self.runs = True
        message = {name: keys[name] for name in ("server_secret", "worker_public")}
        self._keeper.send(keeper.START, {"server": self.number, "keys": message})

    def tell(self, line):
        self._keeper.send(keeper.TELL, {"server": self.number, "line": line})


class Keeper:
    """The keeper of one host, with the servers of these `numbers`.

    opening: the message that all keepers receive, see keeper.py.
    """

    def __init__(self, host, numbers, way, opening, selector, events):
        self.host = host
        self.servers = {number: Kept(number, self) for number in numbers}
        self.ready = False
        self._way, self._opening = way, opening
        self._own = host in way.own
        self._selector, self._events = selector, events
        self._process = None
        self._sending = threading.Lock()  # two threads send
        self._mark = secrets.token_hex(16)
        self._before = b""  # data before the mark; None after it
        self._frames = frames.Frames()
        self._error, self._refusal = b"", ""  # messages of ssh; the reason why the keeper ends
        self._closed = False  # the keeper's output has ended
        self._heard = self._looked = time.monotonic()
        self._folder = ""

    def start(self):
        words, options = [sys.executable, "-I", "-S", os.path.realpath(keeper.__file__)], {}
        # A keeper on this host outlives heturun, to clean up; ssh must not, because it would hang if the network is
        # lost.
        if not self._own:
            there, me = f"cd {shlex.quote(os.getcwd())} || exit {remote.NO_FOLDER}; exec {shlex.join(words)}", os.getpid()
            words = ["ssh", *remote.ssh_options(self._way.key), self.host, there]
            options["preexec_fn"] = lambda: processes.die_with_parent(signal.SIGKILL, me)
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                         bufsize=0, start_new_session=True, **options)
        self._heard = time.monotonic()
        for stream, take in ((self._process.stdout, self._take), (self._process.stderr, self._take_error)):
            self._selector.register(stream, selectors.EVENT_READ, take)
        self.send(keeper.OPEN, {**self._opening, "mark": self._mark, "servers": list(self.servers),
                                "interface": self._way.interface, "environment": dict(self._way.environment)})

    def send(self, kind, payload=b""):
        data = frames.pack(kind, payload)
        try:
            with self._sending:
                while data:
                    data = data[self._process.stdin.write(data):]
        except (OSError, ValueError, AttributeError):
            pass  # the end is noticed elsewhere

    def beat(self):
        """Sends a heartbeat of heturun."""
        self.send(frames.HEARTBEAT)

    def _take_error(self):
        data = os.read(self._process.stderr.fileno(), 65536)
        if not data:
            self._selector.unregister(self._process.stderr)
        self._error = (self._error + data)[-LONGEST_ERROR:]

    def _take(self):
        data = os.read(self._process.stdout.fileno(), 65536)
        if not data:
            self._selector.unregister(self._process.stdout)
            self._closed = True
            return
        self._heard = time.monotonic()
        if self._before is not None:
            self._before, mark, data = (self._before + data).partition(self._mark.encode() + b"\n")
            self._before = None if mark else self._before[-LONGEST_ERROR:]
        for kind, payload in self._frames.feed(data):
            if kind == keeper.READY:
                self._take_ready(json.loads(payload))
            elif kind == keeper.REFUSED:
                self._refusal = payload.decode(errors="replace")
            elif kind == keeper.ASKED:
                self._events.servers.asked(self.servers[int(payload)])
            elif kind == keeper.SAID:
                said = json.loads(payload)
                text = said["text"].encode(errors="surrogateescape")
                self._events.servers.said(self.servers[said["server"]], said["descriptor"], text)
            elif kind == keeper.ENDED:
                end = json.loads(payload)
                server = self.servers[end["server"]]
                server.runs = False
                self._events.servers.ended(server, end["pid"], end["status"])

    def _take_ready(self, message):
        for server, endpoints in zip(self.servers.values(), message["endpoints"], strict=True):
            server.endpoints = endpoints
        self._folder, self.ready = message["folder"], True
        self._events.ready(self, message["removed"])

    def is_silent(self, now):
        """Returns true if it may be lost, which is not decided yet."""
        return self._process is not None and now - self._heard > SILENT_S

    def check(self, statuses, now):
        """Notices the keeper's end, from {pid: wait status}, or its silence. Call it every second."""
        if now - self._looked > processes.PAUSE_S:
            self._heard = now
        self._looked = now
        if self._process is None:
            return
        if self._closed and self._process.pid in statuses:
            self._lose(os.waitstatus_to_exitcode(statuses.pop(self._process.pid)))
        elif now - self._heard > (guard.DEAD_S if self.ready else START_S):
            self._lose(None)

    def _lose(self, code):
        """Reports the keeper's end. `code` is its exit status, or None for silence."""
        self._forget()
        for server in self.servers.values():
            server.runs = False
        said = self._error.decode(errors="replace")
        several = len(self.servers) > 1
        if self._refusal:
            status, reason = 4, self._refusal
        elif code == remote.NO_FOLDER:
            status, reason = 4, f"it has no folder {os.getcwd()}"
        elif not self.ready and code == 255 and not self._own:
            status, reason = 4, remote.of_ssh(said, self._way.key)
        elif not self.ready:
            how = f"has not answered in {START_S:g} s" if code is None else ending(code)
            status, reason = 4, f"its keeper of servers {how}{': ' * bool(said)}{' '.join(said.split()[-30:])}"
        elif code is None:
            status, reason = -signal.SIGKILL, (
                f"{'are' if several else 'is'} silent for {guard.DEAD_S:g} s: {'their' if several else 'its'} host or the "
                f"network is lost, or {'their' if several else 'its'} keeper is stopped")
        else:
            status, reason = -signal.SIGKILL, (
                f"{'are' if several else 'is'} gone without a report: {'their' if several else 'its'} keeper was killed or "
                f"{'their' if several else 'its'} host is lost")
        self._events.lost(self, status, reason)

    def dismiss(self):
        """Asks the keeper to end."""
        if self._process is not None:
            with self._sending:
                self._process.stdin.close()

    def close(self):
        """Waits for the keeper's end after dismiss(), and kills it if necessary."""
        if self._process is not None:
            try:
                self._process.wait(0 if self.is_silent(time.monotonic()) else FAREWELL_S)
            except subprocess.TimeoutExpired:
                pass
            self._forget()

    def _forget(self):
        process, self._process = self._process, None
        for stream in (process.stdout, process.stderr):
            if stream in self._selector.get_map():
                self._selector.unregister(stream)
        if process.poll() is None:
            process.kill()
            process.wait()
        with self._sending:
            process.stdin.close()
        process.stdout.close()
        process.stderr.close()
        if self._own and self._folder:  # the keeper itself was killed
            shutil.rmtree(self._folder, ignore_errors=True)

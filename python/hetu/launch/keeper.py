"""The keeper of the parameter servers of one host, in a job with several hosts.

heturun starts it, by ssh on other hosts. The keeper listens for the servers' clients, starts the servers and reports their
ends. heturun makes all decisions.

It exchanges frames (frames.py) over standard input and output, so ssh keeps keys secret. When its input ends or is silent,
it ends with all processes that it has started, and removes its folder. It runs as `python3 -I -S keeper.py`. Therefore it
uses only the standard library and modules that import nothing else.

From heturun: OPEN (JSON, first); for a server AWAIT (its number), START (JSON: server, keys), TELL (JSON: server, line);
HEARTBEAT.

To heturun: the line MARK of OPEN, which separates the frames from earlier output of a login shell; READY (JSON) or REFUSED
(reason); for a server ASKED (its number), SAID (JSON: server, descriptor, text), ENDED (JSON: server, pid, status);
HEARTBEAT.
"""
import json
import os
import selectors
import shutil
import signal
import sys
import time

if __name__ == "__main__":  # -I leaves the package out
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__)))))
from hetu.launch import folders, network, processes, service
from hetu.launch.frames import HEARTBEAT, Frames, pack
from hetu.launch.guard import DEAD_S, HEARTBEAT_S

OPEN, AWAIT, START, TELL, READY, REFUSED, ASKED, SAID, ENDED = b"oastRFQDZ"
OPEN_S = 30.0  # longest wait for OPEN


class Keeper:
    """The servers of this host. `up` is the descriptor that heturun reads."""

    def __init__(self, up):
        self._up = up
        self._down = Frames()
        self._selector = selectors.DefaultSelector()
        self._servers = {}
        self._folder, self._locks = "", []
        self._statuses = {}
        self._ends = False
        self._heard = self._looked = time.monotonic()
        self._beat = 0.0

    def run(self, down, wakeup):
        """Serves heturun to its end. Returns the exit status."""
        self._selector.register(down, selectors.EVENT_READ, lambda: self._take(down))
        self._selector.register(wakeup, selectors.EVENT_READ, lambda: self._take_signals(wakeup))
        try:
            while not self._ends:
                for key, _ in self._selector.select(timeout=HEARTBEAT_S):
                    key.data()
                processes.reap(self._statuses)
                now = time.monotonic()
                for server in self._servers.values():
                    server.check(self._statuses, now)
                self._tick(now)
        except OSError as error:
            self._send(REFUSED, " ".join(str(error).split()).encode())
            return 4
        finally:
            self._close()
        return 0

    def _tick(self, now):
        if now - self._looked > processes.PAUSE_S:
            self._heard = now
        self._looked = now
        if self._servers and now - self._beat >= HEARTBEAT_S:
            self._beat = now
            self._send(HEARTBEAT)
        if now - self._heard > (DEAD_S if self._servers else OPEN_S):
            self._ends = True

    def _close(self):
        for server in self._servers.values():
            server.dismiss()
        for server in self._servers.values():
            server.close()
        processes.kill_descendants(self._statuses)
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _send(self, kind, payload=b""):
        data = pack(kind, payload)
        try:
            while data:
                data = data[os.write(self._up, data):]
        except OSError:  # heturun is gone
            self._ends = True

    def _take_signals(self, wakeup):
        for number in os.read(wakeup, 4096):
            self._ends = self._ends or number != signal.SIGCHLD

    def _take(self, down):
        data = os.read(down, 65536)
        self._heard = time.monotonic()
        for kind, payload in self._down.feed(data):
            if kind == OPEN:
                self._open(json.loads(payload))
            elif kind == AWAIT:
                self._servers[int(payload)].listen()
            elif kind == START:
                message = json.loads(payload)
                self._servers[message["server"]].start(message["keys"])
            elif kind == TELL:
                message = json.loads(payload)
                self._servers[message["server"]].tell(message["line"])
        if not data:
            self._selector.unregister(down)
            self._ends = True

    # -- messages from heturun ----------------------------------------------------------------------------------------

    def _open(self, message):
        """Creates the sockets of the servers, and the folder of their logs. Raises OSError on failure."""
        os.write(self._up, message["mark"].encode() + b"\n")
        folder = message["folder"]
        if folder and not (os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)):
            raise OSError(f"--server-log {folder}: it must be an existing, writable folder on this host, too")
        removed = folders.sweep([folders.short_place(), "/dev/shm", *filter(None, [folder])])
        if message["restart"]:
            self._folder, self._locks = folders.make(folder or folders.short_place(), message["job"])
        addresses = network.own_addresses(message["interface"])
        environment = {**os.environ, **message["environment"]}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [sys.path[-1], environment.get("PYTHONPATH")]))
        sockets = {number: service.listen(f"server {number}", None, addresses) for number in message["servers"]}
        for number, where in sockets.items():
            command = ("server", number, message["of"], self._folder, message["job"])
            events = service.Events(lambda _, number=number: self._send(ASKED, str(number).encode()),
                                    lambda _, *said, number=number: self._tell_said(number, *said),
                                    lambda _, *end, number=number: self._tell_end(number, *end))
            self._servers[number] = service.Service(
                f"server {number}", command, where, environment, self._selector, events)
        self._send(READY, {"endpoints": [sockets[number].endpoints for number in message["servers"]], "folder": self._folder,
                           "removed": removed})

    def _tell_said(self, number, descriptor, text):
        text = text.decode(errors="surrogateescape")
        self._send(SAID, {"server": number, "descriptor": descriptor, "text": text})

    def _tell_end(self, number, pid, status):
        self._send(ENDED, {"server": number, "pid": pid, "status": status})


def main():
    wakeup, wakeup_end = os.pipe()
    for descriptor in (wakeup, wakeup_end):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(wakeup_end, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    processes.adopt_orphans()
    up = os.dup(1)
    os.dup2(2, 1)  # for stray output to standard output
    return Keeper(up).run(0, wakeup)


if __name__ == "__main__":
    sys.exit(main())

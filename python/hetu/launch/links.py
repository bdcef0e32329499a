"""heturun's end of the guards' connections: admission, reception and sending. Used by supervise.py."""
import errno
import json
import secrets
import selectors
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from hetu.launch import frames, guard, processes, service

STRANGER_S = 10.0  # time in which a peer must prove to be a guard of this job
MOST_STRANGERS = 128  # limit for connections without proof at a time, in addition to one for each worker
HEARD_S = 1.0  # least time that each of them gets, however many there are
NO_GUARD = (ValueError, KeyError, TypeError, OverflowError, RecursionError)  # errors that foreign bytes can cause


class Link:
    """A connection. Two threads send on it."""

    def __init__(self, sock, place=""):
        self.sock = sock
        self.place = place  # the peer's address
        self.frames = frames.Frames(frames.LONGEST_HELLO)
        self.nonce = secrets.token_bytes(16)
        self.worker = None  # the guard's worker; None before it has proved itself
        self.heard = time.monotonic()
        self._sending = threading.Lock()

    def send(self, kind, payload=b""):
        try:
            with self._sending:
                self.sock.sendall(frames.pack(kind, payload))
        except OSError:
            pass  # its end of file will be noticed

    def close(self):
        with self._sending:
            self.sock.close()


class Events(NamedTuple):
    """Events of guards that have proved themselves. frame(worker, kind, payload): a frame, HELLO first. gone(worker,
    is_silent): the connection has ended, or was dropped because of silence."""
    frame: Callable
    gone: Callable


class Links:
    """All connections, which `selector` serves.

    place: the folder of the socket, or None for a job on several hosts.
    addresses: this host's IPv4 addresses in a job on several hosts.
    timeout_s: longest time for a peer to accept sent data.
    events: receives frames and the ends of connections.
    """

    def __init__(self, selector, workers, place, addresses, timeout_s, events):
        self.token = secrets.token_hex(16)
        self._selector = selector
        self._workers = workers
        self._timeout_s = timeout_s
        self._events = events
        self._open = []
        self._known = set()  # the workers whose guards have connected
        self._remote = place is None
        self._looked = 0.0
        self._closed = threading.Event()
        where = service.listen("heturun", place, addresses)
        self._listener = where.listener
        if self._remote:
            self.address = "tcp:" + where.endpoints.replace("tcp://", "")
        else:
            self.address = where.endpoint.replace("ipc://", "unix:")
        self._listener.setblocking(False)
        self._accepts = False
        self._listen(True)

    def of(self, part):
        """Returns the links of a part's guards."""
        return [link for link in self._open if link.worker is not None and link.worker.part is part]

    def signal(self, number, workers=None):
        """Sends a signal to the connected guards, to all or to those of `workers`. Guards of ended workers also receive it,
        because they may wait to learn of the end."""
        for link in self._open:
            if link.worker in (self._workers if workers is None else workers):
                link.send(frames.SIGNAL, str(int(number)).encode())

    def start_heartbeats(self, *others):
        """Starts sending heartbeats to the guards of other hosts, and calls `others` at the same rate. It uses its own
        thread, because the loop may be blocked, for example by a paused terminal."""
        if self._remote or others:
            threading.Thread(target=self._send_heartbeats, args=(others,), daemon=True).start()

    def _send_heartbeats(self, others):
        while not self._closed.wait(guard.HEARTBEAT_S):
            for beat in others:
                beat()
            for link in list(self._open):  # includes those whose HELLO the loop has not read yet
                link.send(frames.HEARTBEAT)

    def check(self, now):
        """Drops peers that have been silent for too long. Call it every second."""
        self._listen(True)
        stopped = now - self._looked > processes.PAUSE_S
        self._looked = now
        for link in list(self._open):
            if stopped:
                link.heard = now
            if link.worker is None and now - link.heard > STRANGER_S:
                self.drop(link, is_silent=True)
        for link in self._silent(now):
            self.drop(link, is_silent=True)

    def _silent(self, now):
        """Returns the links whose guards count as dead. A lost host's guards are all silent, but their last heartbeats can
        be two periods apart. They are dropped together, so that nobody waits for the second."""
        guards = [link for link in self._open if link.worker is not None] if self._remote else []
        hosts = {link.worker.host for link in guards if now - link.heard > guard.DEAD_S}
        return [link for link in guards
                if link.worker.host in hosts and now - link.heard > guard.DEAD_S - 2 * guard.HEARTBEAT_S]

    def drop(self, link, is_silent=False):
        if link not in self._open:
            return
        self._selector.unregister(link.sock)
        self._open.remove(link)
        link.close()
        if link.worker is not None:
            self._events.gone(link.worker, is_silent)

    def close(self):
        self._closed.set()
        for link in self._open:
            link.close()
        self._listener.close()

    def _listen(self, accepts):
        if accepts and not self._accepts:
            self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        elif not accepts and self._accepts:
            self._selector.unregister(self._listener)
        self._accepts = accepts

    def _make_room(self):
        """Returns true if one more unproved peer may connect. If there are too many, drops the oldest one of the address
        with the most, so that a flood does not displace guards. If even that one is too new, newcomers wait in the system's
        queue until the next check()."""
        strangers = [link for link in self._open if link.worker is None]
        if not self._remote or len(strangers) < MOST_STRANGERS + len(self._workers):
            return True
        places = [link.place for link in strangers]
        busiest = max(set(places), key=places.count)
        oldest = next(link for link in strangers if link.place == busiest)
        if time.monotonic() - oldest.heard < HEARD_S:
            return False
        self.drop(oldest)
        return True

    def _accept(self):
        if not self._make_room():
            self._listen(False)
            return
        try:
            sock, place = self._listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._listen(False)
            return  # otherwise the peer has already disconnected
        sock.settimeout(self._timeout_s)
        link = Link(sock, place[0] if self._remote else "")
        self._open.append(link)
        self._selector.register(sock, selectors.EVENT_READ, lambda: self._take(link))
        link.send(frames.NONCE, link.nonce)

    def _take(self, link):
        try:
            data = link.sock.recv(1 << 18)
        except OSError:
            data = b""
        if link.worker is not None:
            link.heard = time.monotonic()
        try:
            for kind, payload in link.frames.feed(data):
                if link.worker is None:
                    self._admit(link, kind, payload)
                self._events.frame(link.worker, kind, payload)
        except NO_GUARD:
            data = b""
        if not data:
            self.drop(link)

    def _admit(self, link, kind, payload):
        """Admits a guard by its first frame. Raises one of NO_GUARD for any other peer."""
        if kind != frames.HELLO:
            raise ValueError("a frame before hello")
        hello = json.loads(payload)
        number = int(hello["worker"])
        proved = secrets.compare_digest(str(hello["proof"]), guard.proof(self.token, link.nonce, number))
        if not proved or not 0 <= number < len(self._workers) or number in self._known:
            raise ValueError("not a guard of this job")
        self._known.add(number)
        link.worker = self._workers[number]
        link.heard = time.monotonic()
        link.frames.longest = frames.LONGEST_FRAME

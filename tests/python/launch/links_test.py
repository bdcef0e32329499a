"""heturun's end of the guards' connections: accepted and dropped connections."""
import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

from hetu.launch import frames, guard, links, processes, run_guard
from hetu.launch.part import FORCE_MPIRUN_S, Part, StartCommand, Worker


class Endpoint(unittest.TestCase):
    """A listener of a job on several hosts with two workers, and processes that connect to it."""

    def setUp(self):
        self.frames, self.gone = [], []
        self.selector = selectors.DefaultSelector()
        self.workers = [Worker(0), Worker(1)]
        self.links = links.Links(self.selector, self.workers, None, ["127.0.0.1"], 5.0, links.Events(
            lambda worker, kind, payload: self.frames.append((worker.number, kind, payload)),
            lambda worker, _: self.gone.append(worker.number)))
        self.addCleanup(self.selector.close)
        self.addCleanup(self.links.close)

    def serve(self, seconds=0.2):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for key, _ in self.selector.select(timeout=0.02):
                key.data()

    def knock(self):
        """Returns (socket, nonce) of a new connection."""
        sock = guard.connect(self.links.address)
        sock.settimeout(0.0)
        self.addCleanup(sock.close)
        self.serve()
        [(kind, nonce)] = frames.Frames().feed(sock.recv(4096))
        self.assertEqual(kind, frames.NONCE)
        return sock, nonce

    def hello(self, nonce, worker=1, token=None):
        return frames.pack(frames.HELLO, {"worker": worker, "host": "w1", "protocol": frames.PROTOCOL,
                                          "proof": guard.proof(token or self.links.token, nonce, worker)})

    @staticmethod
    def closed(sock):
        try:
            return sock.recv(4096) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def test_a_guard_whose_hello_is_not_read_yet_hears_that_heturun_lives(self):
        """Heartbeats reach a guard whose hello isn't read yet. The loop may block on a terminal, and the guard would end its
        worker after DEAD_S of silence."""
        sock, nonce = self.knock()
        sock.sendall(self.hello(nonce))
        self.links.start_heartbeats()
        sock.settimeout(10 * guard.HEARTBEAT_S)
        [(kind, _)] = frames.Frames().feed(sock.recv(4096))
        self.assertEqual(kind, frames.HEARTBEAT)
        self.assertEqual(self.frames, [])
        self.serve()
        self.assertEqual([frame[:2] for frame in self.frames], [(1, frames.HELLO)])

    def test_a_guard_gets_in_once(self):
        sock, nonce = self.knock()
        long = frames.pack(frames.OUT, b"x" * 5000)  # longer than a stranger's limit
        sock.sendall(self.hello(nonce) + long)
        self.serve()
        self.assertEqual([(number, kind) for number, kind, _ in self.frames], [(1, frames.HELLO), (1, frames.OUT)])
        again, nonce = self.knock()
        again.sendall(self.hello(nonce))
        self.serve()
        self.assertTrue(self.closed(again))
        self.assertFalse(self.closed(sock))
        sock.close()
        self.serve()
        self.assertEqual(self.gone, [1])

    def test_strangers_are_dropped_before_anything_is_held(self):
        _, nonce = self.knock()
        deep = b'{"worker": ' + b"[" * 4000
        for name, sent in (
                ("no frame", b"GET / HTTP/1.1\r\n\r\n"),
                ("too long", frames.HEADER.pack(frames.HELLO, frames.LONGEST_HELLO + 1)),
                ("another frame", frames.pack(frames.OUT, b"x\n")),
                ("no JSON", frames.pack(frames.HELLO, b"\xff\xfe")),
                ("too deep", frames.pack(frames.HELLO, deep)),
                ("too large a number", frames.pack(frames.HELLO, b'{"worker": 1e999, "proof": ""}')),
                ("a list", frames.pack(frames.HELLO, b"[]")),
                ("another secret", self.hello(nonce, token="guessed")),
                ("a worker too many", self.hello(nonce, worker=2))):
            with self.subTest(name):
                sock, _ = self.knock()
                with contextlib.suppress(OSError):
                    sock.sendall(sent)
                self.serve()
                self.assertTrue(self.closed(sock))
        self.assertEqual((self.frames, self.gone), ([], []))

    def test_who_says_nothing_is_dropped(self):
        stranger, _ = self.knock()
        known, nonce = self.knock()
        known.sendall(self.hello(nonce))
        self.serve()
        now = time.monotonic()
        self.links.check(now)
        self.links.check(now + 1.5)
        stranger.sendall(frames.HEADER.pack(frames.HELLO, 100))  # half a frame doesn't extend the deadline
        for second in range(3, int(links.STRANGER_S) + 1):
            self.serve(0.01)
            known.sendall(frames.pack(frames.HEARTBEAT))
            with mock.patch.object(links.time, "monotonic", lambda second=second: now + second):
                self.selector_once()
            self.links.check(now + second)
            self.assertFalse(self.closed(known), second)
            self.assertFalse(self.closed(stranger), second)
        self.links.check(now + links.STRANGER_S + 1)
        self.assertTrue(self.closed(stranger))
        self.assertFalse(self.closed(known))
        for second in range(int(links.STRANGER_S) + 2, int(links.STRANGER_S + guard.DEAD_S) + 2):
            self.links.check(now + second)
        self.assertTrue(self.closed(known))
        self.assertEqual(self.gone, [1])

    def test_the_guards_of_a_lost_host_are_lost_together(self):
        """The last heartbeats of a lost host's two guards are up to two periods apart. A guard of another host stays."""
        for host, apart_s, lost in (("w1", 0.7, [0, 1]), ("w1", 1.9, [0, 1]), ("w1", 2.1, [1]), ("w2", 0.7, [1])):
            with self.subTest(host=host, apart_s=apart_s):
                self.setUp()
                self.workers[0].host, self.workers[1].host = host, "w1"
                for worker in (0, 1):
                    sock, nonce = self.knock()
                    sock.sendall(self.hello(nonce, worker))
                self.serve()
                now = time.monotonic()
                self.links.check(now)
                for link in self.links._open:
                    link.heard = now + apart_s * (link.worker.number == 0)
                for second in range(1, int(guard.DEAD_S) + 1):
                    self.links.check(now + second)
                    self.assertEqual(self.gone, [])
                self.links.check(now + guard.DEAD_S + 0.05)
                self.assertEqual(sorted(self.gone), lost)

    def selector_once(self):
        for key, _ in self.selector.select(timeout=1.0):
            key.data()

    def test_nobody_is_blamed_for_a_pause_of_ones_own(self):
        known, nonce = self.knock()
        known.sendall(self.hello(nonce))
        self.serve()
        now = time.monotonic()
        self.links.check(now)
        self.links.check(now + 3 * guard.DEAD_S)
        self.assertFalse(self.closed(known))

    def test_a_connection_that_cannot_be_accepted(self):
        with mock.patch.object(socket.socket, "accept", side_effect=OSError(24, "Too many open files")):
            sock = guard.connect(self.links.address)
            self.addCleanup(sock.close)
            self.serve()
        self.links.check(time.monotonic())  # a second later, heturun tries again
        self.serve()
        self.assertEqual(len(sock.recv(4096)), frames.HEADER.size + 16)

    def flood(self, count, place):
        """Opens silent connections from an address."""
        host, _, port = self.links.address.removeprefix("tcp:").rpartition(":")
        made = []
        for _ in range(count):
            made.append(socket.create_connection((host, int(port)), timeout=5, source_address=(place, 0)))
            self.addCleanup(made[-1].close)
        return made

    def test_a_flood_takes_a_bounded_number_of_slots_and_pushes_out_no_guard(self):
        """A flood drops neither an identified guard nor a guard from another address that hasn't sent its hello yet."""
        most = links.MOST_STRANGERS + len(self.workers)
        known, nonce = self.knock()
        known.sendall(self.hello(nonce))
        self.serve()
        late, nonce = self.knock()
        now = time.monotonic()
        self.flood(most + 50, "127.0.0.2")
        self.serve(0.5)
        links_of = [link for link in self.links._open if link.worker is None]
        self.assertEqual(len(links_of), most)
        with mock.patch.object(links.time, "monotonic", lambda: now + 2 * links.HEARD_S):
            self.links.check(now + 2 * links.HEARD_S)
            self.flood(50, "127.0.0.2")
            for _ in range(200):
                for key, _ in self.selector.select(timeout=0):
                    key.data()
        self.assertEqual(len([link for link in self.links._open if link.worker is None]), most)
        self.assertFalse(self.closed(known))
        late.sendall(self.hello(nonce, worker=0))
        self.serve()
        self.assertEqual([number for number, kind, _ in self.frames if kind == frames.HELLO], [1, 0])
        self.assertEqual(self.gone, [])


class Mpirun(unittest.TestCase):
    def test_the_status_of_one_that_ends_while_it_is_ended_is_not_lost(self):
        part = Part(0, [Worker(0)])
        list(part.start(StartCommand("true", ["true"], dict(os.environ))))
        self.addCleanup(part.process.stdout.close)
        self.addCleanup(part.process.stderr.close)
        os.waitid(os.P_PID, part.process.pid, os.WEXITED | os.WNOWAIT)  # it has ended, but isn't reaped yet
        statuses = {}
        part.press(0.0, FORCE_MPIRUN_S + 1.0, statuses)
        part.kill(statuses)
        processes.reap(statuses)
        self.assertEqual(statuses, {part.process.pid: 0})
        self.assertEqual(part.code(statuses), 0)


class Directories(unittest.TestCase):
    def test_a_guard_that_is_dropped_leaves_what_others_use(self):
        """A guard removes the job's folders only when heturun itself ends and its socket refuses connections."""
        with tempfile.TemporaryDirectory() as place, selectors.DefaultSelector() as selector:
            shared = os.path.join(place, "shared")
            os.mkdir(shared)
            workers = [Worker(0), Worker(1)]
            parts = [Part(i, [worker]) for i, worker in enumerate(workers)]
            endpoint = links.Links(selector, workers, place, [], 5.0, links.Events(lambda *_: None, lambda *_: None))
            self.addCleanup(endpoint.close)
            for part, lives in zip(parts, (True, False), strict=True):
                environment = dict(os.environ, HETU_CONTROL_TOKEN=endpoint.token, HETU_FIRST_WORKER=str(part.number))
                environment.pop("OMPI_COMM_WORLD_RANK", None)
                words = [sys.executable, "-I", "-S", run_guard.__file__, endpoint.address, shared, "sleep", "1000"]
                process = subprocess.Popen(words, env=environment)
                while not endpoint.of(part):
                    for key, _ in selector.select(timeout=1.0):
                        key.data()
                if lives:
                    endpoint.drop(endpoint.of(part)[0])
                else:
                    endpoint.close()
                self.assertEqual(process.wait(timeout=60), 128 + signal.SIGTERM)
                self.assertEqual(os.path.isdir(shared), lives)


if __name__ == "__main__":
    unittest.main()

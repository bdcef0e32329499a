"""Ports and sockets of a job on one host: other hosts can't reach them, and other users of this host get no answer."""
import contextlib
import ctypes
import os
import pathlib
import signal
import socket
import struct
import time
import unittest

from coordinator_test import FOREVER, WORKER
from hetu import _hetu
from hetu.launch import network
from launch_test import MANY, LaunchCase
from processes import processes_with, wait_until

LISTENS, NOBODY = "0A", 65534
JOBS = ((), ("--on-failure", "shrink", "--pipelines", "2"))  # jobs with one mpirun and with several
LOOPBACK = {"0100007F": "127.0.0.1", "00000000000000000000000001000000": "::1"}


def knock(address, port, user, writer):
    """Connects as a user in a separate process, sends invalid data, and writes the outcome."""
    fate = b"refused"
    try:
        os.setgid(user)
        os.setuid(user)
        # a socket belongs to the user who creates it
        sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        sock.settimeout(2)
        sock.connect((address, port))
        fate = b"dropped"
        sock.sendall(b"x" * 10)
        fate = b"heard" if sock.recv(100) else b"dropped"
    except TimeoutError:
        fate = b"heard" if fate == b"dropped" else fate
    except OSError:
        pass
    os.write(writer, fate)


def fates_of(knocks):
    """Returns {knock: fate} for (address, port, user), which connect at the same time. A fate is "refused"; "dropped",
    closed without an answer; or "heard"."""
    readers = {}
    for one in knocks:
        reader, writer = os.pipe()
        if os.fork() == 0:  # a fork, because another user may not be able to start a new Python
            try:
                knock(*one, writer)
            finally:
                os._exit(0)
        os.close(writer)
        readers[one] = os.fdopen(reader)
    fates = {}
    for one, reader in readers.items():
        with reader:
            fates[one] = reader.read()
    for _ in readers:
        os.wait()
    return fates


class Ports(LaunchCase):
    def listening(self):
        """Returns {(address in hexadecimal, port)} of all TCP sockets on which this test's processes listen, and of their
        UDP sockets."""
        inodes = set()
        for pid in processes_with(self.mark):
            for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
                try:
                    inodes.add(os.readlink(entry))
                except OSError:
                    continue  # the socket has been closed
        found = set()
        for table in ("tcp", "tcp6", "udp", "udp6"):
            path = pathlib.Path("/proc/net", table)
            for line in path.read_text().splitlines()[1:] if path.exists() else ():
                words = line.split()
                if f"socket:[{words[9]}]" in inodes and (words[3] == LISTENS or table.startswith("udp")):
                    address, port = words[1].split(":")
                    found.add((address, int(port, 16)))
        return found

    @contextlib.contextmanager
    def running(self, flags):
        """Runs a job that must survive the body of the with statement."""
        process, _ = self.start("-w", "2", *flags, WORKER, "1", FOREVER, *(["--shrink"] if flags else []))
        try:
            self.assertTrue(wait_until(lambda: len(self.listening()) > len(flags) // 4, MANY))
            yield
            self.assertIsNone(process.poll())
        except BaseException:
            process.kill()
            process.wait()
            raise
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.finish(process, time.monotonic())[0], 128 + signal.SIGTERM)

    def test_no_other_host_and_no_other_user_is_heard(self):
        own = [address for address in network.interfaces().values() if not address.startswith("127.")]
        here, users = os.getuid(), (NOBODY,) if os.getuid() == 0 else ()
        for flags in JOBS:
            with self.subTest(flags=flags), self.running(flags):
                found = self.listening()
                self.assertEqual({address for address, _ in found} - LOOPBACK.keys(), set(), found)
                outside = fates_of([(address, port, here) for address in own for _, port in found])
                self.assertEqual(set(outside.values()) - {"refused"}, set(), outside)
                inside = {}
                for user in (*users, here):  # Open MPI 5 accepts no other connection while it waits for data of its own user
                    inside |= fates_of([(LOOPBACK[address], port, user) for address, port in found])
                heard = [user for (_, _, user), fate in inside.items() if fate == "heard"]
                self.assertEqual(set(heard), {here}, inside)
                # workers use one port of their mpirun to start; no process listens on the others, where the check is
                # possible
                if here == 0:
                    self.assertEqual(len(heard), 2 if flags else 1, inside)
        if not users:
            self.skipTest("not root: another user cannot be asked")

    def test_users_who_may_attach_no_filter_have_ports_all_the_same(self):
        library = ctypes.CDLL(os.path.join(os.path.dirname(_hetu.__file__), "mpirun_ports.so"))
        anywhere = struct.pack("=HH12x", socket.AF_INET, 0)  # any address, any port
        child = os.fork()
        if child == 0:
            try:
                if os.getuid() == 0:
                    os.setuid(NOBODY)
                with socket.socket() as sock:
                    done = library.bind(sock.fileno(), anywhere, len(anywhere))
                    os._exit(done != 0 or sock.getsockname()[0] != "127.0.0.1")
            finally:
                os._exit(2)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)

    def test_folders_are_the_users_own(self):
        with self.running(()):
            folders = [*pathlib.Path("/dev/shm").glob(f"hetu-{self.job}-*"), *pathlib.Path(self.tmp).glob("hetu-*")]
            self.assertEqual(len(folders), 2, folders)
            for folder in folders:
                self.assertEqual(folder.stat().st_mode & 0o777, 0o700, folder)

    def test_what_is_preloaded_is_the_commands_own(self):
        library = "libm.so.6"
        for before in ("", library):
            self.env["LD_PRELOAD"] = before
            words = 'echo "<$LD_PRELOAD>$HETU_LD_PRELOAD"; grep -c mpirun_ports /proc/$$/maps'
            done = self.run_it("-w", "1", "sh", "-c", words)
            self.assertEqual((done.returncode, done.stdout), (1, f"<{before}>\n0\n"), done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)

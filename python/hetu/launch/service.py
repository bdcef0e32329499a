"""Processes that heturun offers beside the workers: a listening socket from the start, a process from the moment that a
worker connects. A job whose workers never ask pays a socket.

Such a process is `python3 -m hetu.launch.MODULE`. It inherits the socket, and reads its keys and what heturun sees of the
workers from standard input, whose end is its own.
"""
import json
import os
import signal
import socket
import subprocess
import sys

FAREWELL_S = 2.0  # to end by itself when the job is over
MOST_RESTARTS, MOST_IN_VAIN, IN_VAIN_S = 100, 3, 10.0


class Restarts:
    """Whether a process that was killed is started again: MOST_RESTARTS times at most, and not more than MOST_IN_VAIN times
    within IN_VAIN_S unless it has gone on with its work in between."""

    def __init__(self):
        self.count = 0
        self._in_vain = []

    def note_progress(self):
        self._in_vain.clear()

    def refusal(self, now):
        """Why not, for people; "" counts the restart."""
        self._in_vain = [then for then in self._in_vain if now - then < IN_VAIN_S]
        if len(self._in_vain) >= MOST_IN_VAIN:
            return f"{len(self._in_vain) + 1} times within {IN_VAIN_S:g} s"
        if self.count >= MOST_RESTARTS:
            return f"after {self.count} restarts"
        self.count += 1
        self._in_vain.append(now)
        return ""


class Service:
    """heturun's side. `name` is for people and names the socket in the folder `place`, which is None for a job on several
    hosts, of which this one has the IPv4 `addresses`; `module` is of hetu.launch; `arguments` are handed on to it."""

    def __init__(self, name, module, place, addresses, arguments=()):
        from hetu import _hetu

        self.name = name
        self.process = None
        self._module = f"hetu.launch.{module}"
        self._arguments = [str(argument) for argument in arguments]
        if place is None:
            self.listener = socket.create_server(("0.0.0.0", 0), backlog=1024)
            port = self.listener.getsockname()[1]
            self._endpoint = f"tcp://0.0.0.0:{port}"
            endpoints = ",".join(f"tcp://{address}:{port}" for address in addresses)
        else:
            path = os.path.join(place, name.replace(" ", "-"))
            self.listener = socket.socket(socket.AF_UNIX)
            self.listener.bind(path)
            self.listener.listen(1024)
            self._endpoint = endpoints = f"ipc://{path}"
        self._keys = _hetu.service_keys(endpoints)

    @property
    def address(self):
        """What a worker needs to be let in, for its environment; "" if this build has no ZeroMQ."""
        return self._keys["address"] if self._keys else ""

    def start(self):
        """Starts the process on the socket. What is told to it is not buffered: the rest would be written when its end is
        known, which fails."""
        words = [sys.executable, "-m", self._module, self._endpoint, str(self.listener.fileno()), *self._arguments]
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
            pass_fds=[self.listener.fileno()], start_new_session=True,
            env=dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, sys.path))))
        self._write(json.dumps({name: self._keys[name] for name in ("server_secret", "worker_public")}))

    def tell(self, worker, reason):
        """A worker has ended by `reason`, such as `was killed by SIGKILL`."""
        if self.process is not None:
            self._write(f"worker {worker} died: {' '.join(reason.split())}")

    def tell_pipeline(self, pipeline, reason):
        """A pipeline is lost to a job that goes on without it."""
        if self.process is not None:
            self._write(f"pipeline {pipeline} died: {' '.join(reason.split())}")

    def _write(self, line):
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            pass  # its end is noticed by its exit status

    def forget(self):
        """The process has ended: closes what belonged to it. The socket stays, for the next who asks."""
        self._close_streams()
        self.process = None

    def _close_streams(self):
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            stream.close()

    def close(self):
        """Ends the process, in order if it can, and closes the socket."""
        self.listener.close()
        if self.process is None:
            return
        self.process.stdin.close()
        try:
            self.process.wait(FAREWELL_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._close_streams()


def serve(name, work):
    """The process's side: calls work(server_secret, worker_public), which serves the job to its end, told by standard input;
    returns the exit status."""
    from hetu import _hetu

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    with os.fdopen(os.dup(0), "rb", buffering=0) as control:
        line = b""
        while not line.endswith(b"\n"):  # not a byte more: the rest is for the loop in C++
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

"""The state of a job for Prometheus (heturun --metrics-port): answers HTTP requests in heturun's loop, in the text format.

A request may take any time to arrive, and never delays the job: sockets don't block, and there are at most MOST of them."""
import os
import selectors
import socket
import time

from hetu.launch.processes import memory_of
from hetu.launch.run_folder import state_of

MOST = 16  # connections at the same time; further ones are closed
LONGEST = 8 << 10  # bytes of a request
PATIENCE_S = 10.0

# (name, type, help, value of a record of progress)
OF_JOB = (("step", "gauge", "Steps done.", "step"), ("steps", "gauge", "Steps of the whole training.", "total"),
          ("loss", "gauge", "Loss of the last step.", "loss"),
          ("samples_per_second", "gauge", "Samples trained per second.", "samples_per_s"),
          ("tokens_per_second", "gauge", "Tokens trained per second.", "tokens_per_s"))
OF_WORKER = (("worker_up", "gauge", "1 if the worker runs, 0 otherwise."),
             ("worker_slow", "gauge", "1 if the worker is slow (--slow-limit), 0 otherwise."),
             ("worker_stopped", "gauge", "1 if a signal has stopped the worker, 0 otherwise."),
             ("worker_step", "gauge", "Steps that the worker has done."),
             ("worker_compute_seconds_total", "counter", "Seconds that the worker has computed, without waits."),
             ("worker_memory_bytes", "gauge", "Memory of a worker on the host of heturun."))


class AddressError(ValueError):
    """An address at which heturun can't listen."""


def address_of(text):
    """Returns (host, port) of --metrics-port: PORT, which only this host reaches, or HOST:PORT. Raises AddressError."""
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise AddressError(f"--metrics-port {text}: it must be a port, such as 9400, or HOST:PORT")
    return host.strip("[]") or "127.0.0.1", int(port)


class Metrics:
    """Listens at `address`, a (host, port). `records` returns (workers, Slow, last record of progress, its time)."""

    def __init__(self, selector, address, name, records):
        self._selector, self._name, self._records = selector, name, records
        self._open = {}  # {socket: (its request so far, or what is left of the answer; time of its arrival)}
        try:
            self._socket = socket.create_server(address, family=socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
        except OSError as error:
            raise AddressError(f"--metrics-port: cannot listen at port {address[1]} of {address[0]}: "
                               f"{os.strerror(error.errno or 0)}; choose another one") from None
        self._socket.setblocking(False)
        selector.register(self._socket, selectors.EVENT_READ, self._accept)

    def close(self):
        """Ends all connections."""
        for one in [*self._open, self._socket]:
            self._drop(one)

    def check(self, now):
        """Ends connections that take too long to send a request, or to read the answer."""
        for one in [one for one, (_, since) in self._open.items() if now - since > PATIENCE_S]:
            self._drop(one)

    def _accept(self):
        try:
            one, _ = self._socket.accept()
        except OSError:  # the peer has left, or there are no more descriptors
            return
        one.setblocking(False)
        if len(self._open) >= MOST:
            one.close()
            return
        self._open[one] = b"", time.monotonic()
        self._selector.register(one, selectors.EVENT_READ, lambda: self._take(one))

    def _take(self, one):
        before, since = self._open[one]
        try:
            data = one.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        request = before + data
        if data and b"\r\n\r\n" not in request and len(request) < LONGEST:
            self._open[one] = request, since
            return
        if b"\r\n\r\n" in request:
            words = request.split(b"\r\n", 1)[0].split()
            found = len(words) == 3 and words[0] == b"GET" and words[1].split(b"?")[0] in (b"/metrics", b"/")
            body = self.text().encode() if found else b"GET /metrics\n"
            head = (f"HTTP/1.1 {'200 OK' if found else '404 Not Found'}\r\nContent-Type: text/plain; version=0.0.4; "
                    f"charset=utf-8\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n")
            self._open[one] = memoryview(head.encode() + body), since
            self._selector.modify(one, selectors.EVENT_WRITE, lambda: self._send(one))
            return
        self._drop(one)

    def _send(self, one):
        data, since = self._open[one]
        try:
            data = data[one.send(data):]
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._open[one] = data, since
        if not data:
            self._drop(one)

    def _drop(self, one):
        self._open.pop(one, None)
        self._selector.unregister(one)
        one.close()

    def text(self):
        """Returns the metrics in Prometheus' text format."""
        workers, pace, record, at = self._records()
        lines = [*_head("job_info", "gauge", "The job; its value is 1."), f"hetu_job_info{_labels(job=self._name)} 1"]
        for name, kind, text, key in OF_JOB:
            if record.get(key) is not None:
                lines += [*_head(name, kind, text), f"hetu_{name} {record[key]!r}"]
        if at is not None:
            lines += [*_head("progress_timestamp_seconds", "gauge", "Time of the last report of progress."),
                      f"hetu_progress_timestamp_seconds {at!r}"]
        for name, kind, text in OF_WORKER:
            lines += _head(name, kind, text)
            for worker in workers:
                value = _of_worker(name, worker, pace)
                if value is not None:
                    lines.append(f"hetu_{name}{_labels(worker=worker.number, host=worker.host)} {value!r}")
        return "\n".join(lines) + "\n"


def _of_worker(name, worker, pace):
    state = state_of(worker, pace)
    if name == "worker_up":
        return int(worker.started and worker.code is None)
    if name in ("worker_slow", "worker_stopped"):
        return int(state == name.partition("_")[2])
    if name == "worker_memory_bytes":
        return memory_of(worker.pid) or None if worker.code is None and worker.host == socket.gethostname() else None
    return worker.beat.get({"worker_step": "step", "worker_compute_seconds_total": "work_s"}[name])


def _head(name, kind, text):
    return [f"# HELP hetu_{name} {text}", f"# TYPE hetu_{name} {kind}"]


def _labels(**labels):
    def escaped(value):
        return str(value).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return "{" + ",".join(f'{name}="{escaped(value)}"' for name, value in labels.items()) + "}"

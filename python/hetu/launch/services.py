"""The coordinator and the parameter servers of a job, as heturun's loop sees them."""
import os
import re
import selectors
import time
from collections.abc import Callable
from typing import NamedTuple

from hetu.launch import guard
from hetu.launch.part import ending
from hetu.launch.service import MOST_RESTARTS, Restarts, Service


class Servers(NamedTuple):
    """The parameter servers of a job: how many; whether one that is killed is started again; the folder below which it finds
    what it goes on from, "" for the job's own."""
    number: int = 1
    restart: bool = True
    folder: str = ""


class Loop(NamedTuple):
    """What heturun's loop does: `show(text)` with what a process says of itself, `say(text)` with a line of its own,
    `lose(part, reason)` for a pipeline that the coordinator has given up, `fail(name, pid, status, how)` where a process has
    ended for good, `how` being for people; `is_over()`."""
    show: Callable
    say: Callable
    lose: Callable
    fail: Callable
    is_over: Callable


class Services:
    """`selector` is the loop's; `workers` and `parts` are the job's. There are `servers` parameter servers; `log` is where
    they keep their logs, and of which job; "" is nowhere, and then none is started again."""

    def __init__(self, place, addresses, servers, log, selector, workers, parts, loop):
        self._coordinator = Service("coordinator", "coordinator", place, addresses)
        self._servers = [Service(f"server {k}", "server", place, addresses, (k, servers, *log)) for k in range(servers)]
        self._restarts = {server: Restarts() for server in self._servers if log[0]}
        self._all = [self._coordinator, *self._servers]
        self._selector, self._workers, self._parts, self._loop = selector, workers, parts, loop

    def environment(self):
        """What tells workers where they are."""
        return {"HETU_COORDINATOR": self._coordinator.address,
                "HETU_SERVERS": ";".join(server.address for server in self._servers)}

    @property
    def runs(self):
        """Whether one of the processes does."""
        return any(service.process is not None for service in self._all)

    def listen(self):
        for service in self._all:
            self._await(service)

    def _await(self, service):
        """Its process starts when somebody connects; nobody can in a build without ZeroMQ."""
        if service.address:
            self._selector.register(service.listener, selectors.EVENT_READ, lambda: self._start(service))

    def _start(self, service):
        self._selector.unregister(service.listener)
        if not self._loop.is_over():
            self._run(service)

    def _run(self, service):
        service.start()
        for worker in self._workers:
            self._tell(service, worker)
        for part in self._parts:
            if part.lost_at is not None:
                service.tell_pipeline(part.number, f"is lost: {part.loss}")
        take = self._take_losses if service is self._coordinator else lambda text: self._take_report(service, text)
        for stream, taken in ((service.process.stderr, self._loop.show), (service.process.stdout, take)):
            self._selector.register(stream, selectors.EVENT_READ, self._reader(stream, guard.Lines(), taken))

    def _reader(self, stream, lines, take):
        """A function that gives to `take` the whole lines that a stream holds, and forgets the stream at its end."""
        def read():
            data = os.read(stream.fileno(), 65536)
            if not data:
                self._selector.unregister(stream)
            if text := lines.feed(data) if data else lines.flush():
                take(text)
        return read

    def _take_losses(self, text):
        for number, reason in re.findall(r"^pipeline (\d+) died: (.*)$", text.decode(errors="replace"), re.MULTILINE):
            self._loop.lose(self._parts[int(number)], reason)

    def _take_report(self, service, text):
        if text == b"serves\n":
            if service in self._restarts:
                self._restarts[service].note_progress()
        else:
            self._loop.show(text)

    def tell(self, worker):
        """A worker has ended."""
        for service in self._all:
            self._tell(service, worker)

    def _tell(self, service, worker):
        if worker.code and not worker.part.killed:  # of whose end the whole pipeline's loss tells the cause
            service.tell(worker.number, worker.end())

    def tell_loss(self, part):
        for service in self._all:
            service.tell_pipeline(part.number, f"is lost: {part.loss}")

    def check(self, statuses):
        """The death of one is the job's, unless it can go on; its end in order, when all workers have left it, is not."""
        for service in self._all:
            process = service.process
            if process is None or process.pid not in statuses:
                continue
            if any(key.fileobj in (process.stderr, process.stdout) for key in self._selector.get_map().values()):
                continue
            status, pid = os.waitstatus_to_exitcode(statuses.pop(process.pid)), process.pid
            service.forget()
            if status == 0:
                self._await(service)
            else:
                self._mend(service, pid, status)

    def _mend(self, service, pid, status):
        """Starts a server that was killed again; what it cannot mend by that fails the job."""
        how = ending(status)
        if status < 0 and service in self._restarts:
            restarts = self._restarts[service]
            refusal = restarts.refusal(time.monotonic())
            if not refusal:
                self._loop.say(f"the {service.name} (pid {pid}) {how}; it is started again from its log, "
                               f"{restarts.count} of at most {MOST_RESTARTS} times")
                self._run(service)
                return
            how += f", {refusal}"
        self._loop.fail(service.name, pid, status, how)

    def close(self):
        for service in self._all:
            service.close()

"""The coordinator and the parameter servers of a job, as heturun's loop sees them."""
import os
import re
import selectors

from hetu.launch import guard
from hetu.launch.service import Service


class Services:
    """`selector` is the loop's; `workers` and `parts` are the job's. The loop gives what it does: `show(text)` with what a
    process says of itself, `lose(part, reason)` for a pipeline that the coordinator has given up, `fail(name, pid, status)`
    where a process dies, and `is_over()`."""

    def __init__(self, place, addresses, servers, selector, workers, parts, show, lose, fail, is_over):
        self._coordinator = Service("coordinator", "coordinator", place, addresses)
        self._servers = [Service(f"server {k}", "server", place, addresses, (k, servers)) for k in range(servers)]
        self._all = [self._coordinator, *self._servers]
        self._selector, self._workers, self._parts = selector, workers, parts
        self._show, self._lose, self._fail, self._is_over = show, lose, fail, is_over

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
        if self._is_over():
            return
        service.start()
        for worker in self._workers:
            self._tell(service, worker)
        for part in self._parts:
            if part.lost_at is not None:
                service.tell_pipeline(part.number, f"is lost: {part.loss}")
        take = self._take_losses if service is self._coordinator else self._show
        for stream, taken in ((service.process.stderr, self._show), (service.process.stdout, take)):
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
            self._lose(self._parts[int(number)], reason)

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
        """The death of one is the job's; its end in order, when all workers have left it, is not."""
        for service in self._all:
            process = service.process
            if process is None or process.pid not in statuses:
                continue
            if any(key.fileobj in (process.stderr, process.stdout) for key in self._selector.get_map().values()):
                continue
            status = os.waitstatus_to_exitcode(statuses.pop(process.pid))
            service.forget()
            if status == 0:
                self._await(service)
            else:
                self._fail(service.name, process.pid, status)

    def close(self):
        for service in self._all:
            service.close()

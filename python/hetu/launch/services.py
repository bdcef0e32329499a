"""The coordinator and the parameter servers of a job, for heturun's loop."""
import os
import re
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from hetu.launch.keepers import Events as KeeperEvents
from hetu.launch.keepers import Keeper, Way
from hetu.launch.part import ending
from hetu.launch.service import MOST_RESTARTS, Events, Restarts, Service, listen


class Servers(NamedTuple):
    """The parameter servers of a job.

    hosts: the host whose keeper runs each server; "" for a server that heturun starts itself.
    way: connection data of keepers.
    restart: True restarts a killed server.
    folder: the parent of the folder for the logs from which a server is restored; "" for the job's own folder.
    wanted: True if the user requested this number of servers.
    """
    hosts: tuple = ("",)
    way: Way = Way()
    restart: bool = True
    folder: str = ""
    wanted: bool = False


class Job(NamedTuple):
    """A job: its name, the folder of its sockets (None for several hosts), this host's addresses for several hosts, its
    workers, and its parts."""
    name: str
    place: str | None
    addresses: list
    workers: list
    parts: list


class Loop(NamedTuple):
    """heturun's loop: its selector and its actions. show(text): prints output of a process. say(text): prints a line of
    heturun. lose(part, reason): handles a pipeline that the coordinator has given up. fail(who, status, how): handles a
    process that has ended for good; `who` and `how` are text for people. is_over(): returns true once the job's end is
    decided."""
    selector: object
    show: Callable
    say: Callable
    lose: Callable
    fail: Callable
    is_over: Callable


class Services:
    """All services of a job. `log` is the folder for logs of servers that heturun starts itself, or ""."""

    def __init__(self, job, servers, log, loop):
        self._job, self._loop = job, loop
        self._asked = set()  # the services to which a client has connected
        self._wanted = len(servers.hosts) if servers.wanted else 0
        self._keys = {}
        self._events = Events(self._start, self._take_said, self._take_end)
        self._coordinator = self._own("coordinator", ("coordinator",))
        opening = {"job": job.name, "of": len(servers.hosts), "restart": servers.restart, "folder": servers.folder}
        self._keepers = [
            Keeper(host, [k for k, its in enumerate(servers.hosts) if its == host], servers.way, opening, loop.selector,
                   KeeperEvents(self._take_ready, self._lose_keeper, self._events))
            for host in dict.fromkeys(servers.hosts) if host and self._can_serve]
        kept = {number: server for its in self._keepers for number, server in its.servers.items()}
        number_of = len(servers.hosts)
        self._servers = [kept.get(k) or self._own(f"server {k}", ("server", k, number_of, log, job.name))
                         for k, host in enumerate(servers.hosts) if not host or k in kept]
        self._restarts = {server: Restarts() for server in self._servers if servers.restart}
        self._all = [self._coordinator, *self._servers]
        self._here = [service for service in self._all if not service.host]  # services that heturun starts itself

    def _own(self, name, command):
        """Creates a service that heturun starts itself."""
        from hetu import _hetu

        where = listen(name, self._job.place, self._job.addresses)
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
        service = Service(name, command, where, environment, self._loop.selector, self._events)
        self._keys[service] = _hetu.service_keys(where.endpoints)
        return service

    @property
    def _can_serve(self):
        """True if this build has the libraries that services need."""
        return self._keys[self._coordinator] is not None

    def environment(self):
        """Returns the variables with which workers find the services and authenticate. Empty if this build has no ZeroMQ."""
        def address(service):
            return self._keys[service]["address"] if self._can_serve else ""
        return {"HETU_COORDINATOR": address(self._coordinator), "HETU_SERVERS": ";".join(map(address, self._servers))}

    @property
    def runs(self):
        """True if one of the processes runs."""
        return any(service.runs for service in self._all)

    def in_doubt(self, now):
        """Returns true if a host of servers is silent, so that workers' errors may follow from its loss."""
        return any(keeper.is_silent(now) for keeper in self._keepers)

    @property
    def ready(self):
        """True if all services listen, and environment() is known."""
        return all(keeper.ready for keeper in self._keepers)

    @property
    def beats(self):
        """The functions to call every second, even while the loop is blocked."""
        return [keeper.beat for keeper in self._keepers]

    def listen(self):
        """Starts listening: processes start when a client connects, which is impossible in a build without ZeroMQ. The
        services of keepers listen once the keepers are ready."""
        for keeper in self._keepers:
            keeper.start()
        for service in self._here if self._can_serve else ():
            service.listen()

    def _take_ready(self, keeper, removed):
        from hetu import _hetu

        if removed:
            self._loop.say(f"host {keeper.host}: removed {', '.join(removed)}: left by a job that was killed, and not in "
                           "use by any process")
        for server in keeper.servers.values():
            self._keys[server] = _hetu.service_keys(server.endpoints)
            server.listen()

    def _lose_keeper(self, keeper, status, reason):
        """Fails the job. Raises OSError if the job has not begun."""
        if not keeper.ready:
            raise OSError(f"host {keeper.host}: {reason}")
        numbers = ", ".join(map(str, keeper.servers))
        self._loop.fail(f"server{'s' * (len(keeper.servers) > 1)} {numbers} ({keeper.host})", status, reason)

    def _start(self, service):
        if not self._loop.is_over():
            self._asked.add(service)
            self._run(service)

    def _run(self, service):
        service.start(self._keys[service])
        for worker in self._job.workers:
            self._tell(service, worker)
        for part in self._job.parts:
            if part.lost_at is not None:
                service.tell(of_pipeline(part.number, f"is lost: {part.loss}"))

    def _take_said(self, service, descriptor, text):
        if descriptor == 2:
            self._loop.show(text)
        elif service is self._coordinator:
            self._take_losses(text)
        elif text != b"serves\n":
            self._loop.show(text)
        elif service in self._restarts:
            self._restarts[service].note_progress()

    def _take_losses(self, text):
        for number, reason in re.findall(r"^pipeline (\d+) died: (.*)$", text.decode(errors="replace"), re.MULTILINE):
            self._loop.lose(self._job.parts[int(number)], reason)

    def tell(self, worker):
        """Reports the end of a worker to the services."""
        for service in self._all:
            self._tell(service, worker)

    def _tell(self, service, worker):
        if worker.code and not worker.part.killed:  # the loss of the whole pipeline is reported instead
            service.tell(f"worker {worker.number} died: {' '.join(worker.end().split())}")

    def tell_loss(self, part):
        for service in self._all:
            service.tell(of_pipeline(part.number, f"is lost: {part.loss}"))

    def check(self, statuses, now):
        """Takes ended processes from {pid: wait status}. The death of a service ends the job unless it is restarted. A
        normal end, after all workers have left it, doesn't."""
        for service in self._here:
            service.check(statuses, now)
        for keeper in self._keepers:
            keeper.check(statuses, now)

    def _take_end(self, service, pid, status):
        if self._loop.is_over():
            return
        if status == 0:
            service.listen()
        else:
            self._mend(service, pid, status)

    def _mend(self, service, pid, status):
        """Restarts a killed server. Fails the job if that is not possible."""
        who = f"the {service.name} ({f'{service.host}, ' if service.host else ''}pid {pid})"
        how = ending(status)
        if status < 0 and service in self._restarts:
            restarts = self._restarts[service]
            refusal = restarts.refusal(time.monotonic())
            if not refusal:
                self._loop.say(f"{who} {how}; it is started again from its log, {restarts.count} of at most {MOST_RESTARTS} "
                               "times")
                self._run(service)
                return
            how += f", {refusal}"
        self._loop.fail(who, status, how)

    def unused(self):
        """Returns a line for people if servers were requested but not used, else ""."""
        if not self._wanted or self._asked - {self._coordinator}:
            return ""
        return (f"no worker needed the {self._wanted} parameter server{'s' * (self._wanted > 1)}; only hetpipe on several "
                "pipelines, --sync-method ps and tables on servers do")

    def close(self):
        for one in (*self._here, *self._keepers):
            one.dismiss()
        for one in (*self._here, *self._keepers):
            one.close()


def of_pipeline(number, reason):
    """Returns the line that informs a service that a job continues without a pipeline."""
    return f"pipeline {number} died: {' '.join(reason.split())}"

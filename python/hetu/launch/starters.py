"""The programs that start the workers: Open MPI's mpirun, or Hetu's own (run_workers.py) for a job on one host."""
import dataclasses
import os
import sys

from hetu.launch import supervise
from hetu.launch.environment import EXPORTED
from hetu.launch.mpirun import Mpirun, closed_ports, found
from hetu.launch.options import Options
from hetu.launch.part import StartCommand

HERE = os.path.dirname(os.path.realpath(__file__))


def choose(environ, is_local):
    """Returns Mpirun(), or None for Hetu's own starter. mpirun is used if it is installed, unless HETU_TRANSPORT is sockets
    in a job on this host. Raises OSError if the job needs mpirun and there is none."""
    transport = environ.get("HETU_TRANSPORT") or "auto"
    if is_local and (transport == "sockets" or (transport == "auto" and not found())):
        return None
    return Mpirun()


@dataclasses.dataclass
class Starts:
    """The common part of the commands that start a job's workers, one for each part.

    mpirun: None for Hetu's own starter.
    local: True if all workers are on this host.
    shared: mpirun's folder for shared memory, if they are; else None.
    """
    options: Options
    job: supervise.Job
    mpirun: Mpirun | None
    interface: str | None
    local: bool
    shared: str | None
    workers: int
    parts: int

    def of(self, number, hosts, environment):
        """Returns the StartCommand of one part, which has these hosts."""
        more = dict(environment)
        if self.options.shrink:
            more.update(HETU_FIRST_WORKER=str(number * self.workers // self.parts), HETU_PIPELINES=str(self.parts))
        if self.mpirun is None:
            return self._by_itself(number, hosts, more)
        return self._by_mpirun_here(number, hosts, more) if self.local else self._by_mpirun(number, hosts, more)

    def _by_itself(self, number, hosts, environment):
        more = dict(environment, HETU_TRANSPORT="sockets", PMIX_NAMESPACE=f"{self.job.name}-{number}")
        workers = sum(host["workers"] for host in hosts)
        return StartCommand("run_workers", self._python("run_workers.py", str(workers)), more)

    def _by_mpirun_here(self, number, hosts, environment):
        # A folder for each mpirun: two that create the same folder at once fail.
        place = os.path.join(os.path.dirname(self.job.address[len("unix:"):]), str(number))
        os.mkdir(place)
        argv = [*self.mpirun.start(hosts), *self.mpirun.local(place, self.shared), *self._python("run_guard.py")]
        return StartCommand("mpirun", argv, {**environment, **closed_ports(environment, place)})

    def _by_mpirun(self, number, hosts, environment):
        ours = {"HETU_JOB", "HETU_CONTROL_TOKEN", "HETU_PATH", "HETU_COORDINATOR", "HETU_SERVERS"}
        names = sorted(n for n in {*environment, *ours} if EXPORTED.match(n))
        remote = self.mpirun.remote(self.options.key, self.interface, names, number)
        return StartCommand("mpirun", [*self.mpirun.start(hosts), *remote, *self._python("run_guard.py")], environment)

    def _python(self, program, *arguments):
        """Returns the command that runs one of Hetu's programs, and in the end the command of the workers."""
        return [sys.executable, "-I", "-S", os.path.join(HERE, program), *arguments, self.job.address,
                ":".join(self.job.directories), *self.options.command]

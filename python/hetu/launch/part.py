"""A starter (mpirun, or run_workers.py) and its workers: the whole job or, in a job that continues without a dead pipeline,
one of its pipelines. Used by supervise.py.

When one worker fails, the others fail soon afterwards: they lose a link (COMM, TIMEOUT), or mpirun ends them (SIGTERM).
Reports arrive in any order, so the first report need not be the cause. Each failed worker gets a distance from the cause, by
the way it ended (Worker.distance). The worker with the smallest distance is blamed, and its status becomes heturun's.
A distance of 0 decides at once. Otherwise the decision waits up to BLAME_WINDOW_S for a report with a smaller distance. For
example, worker 1 reports COMM, and worker 0 reports exit status 2 half a second later: worker 0 is blamed.
"""
import dataclasses
import os
import re
import signal
import subprocess
import time
from typing import NamedTuple

from hetu.launch import guard, last_words, processes
from hetu.launch.guard import COMM, TIMEOUT

FORCE_MPIRUN_S = guard.TERM_GRACE_S + 1.0  # from the decision to end to SIGTERM for mpirun
FORCE_ALL_S = guard.TERM_GRACE_S + 3.0  # from the decision to end to SIGKILL for everything left on this host
FORCE_LOST_S = 2.0  # likewise, if only processes that wait for a lost host are left
# A worker that failed because of another may report first; the other one after its grace.
BLAME_WINDOW_S = guard.GRACE_S + 0.6
LOST_ANOTHER = 2  # see Worker.distance()
STOPPED = "is stopped by a signal such as SIGSTOP"
FOLLOWERS = (-signal.SIGTERM, COMM, TIMEOUT)  # codes of workers that probably failed because of another


def signal_name(number):
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def ending(code):
    """Describes the end of a process, from its exit status or minus the number of a signal."""
    return f"was killed by {signal_name(-code)}" if code < 0 else f"exited with status {code}"


def status_of(code):
    """Returns heturun's exit status for the code."""
    return 128 - code if code < 0 else code


@dataclasses.dataclass(eq=False)
class Worker:
    """The known state of one worker."""
    number: int
    host: str = ""
    pid: int = 0
    guard: int = 0  # process id of its guard, on its host
    part: "Part | None" = None
    started: bool = False
    training: str = ""  # reported by the worker: saves, unsaved, over
    mpi: str = ""  # reported about Open MPI: starts, runs
    code: int | None = None  # exit status, or minus the signal's number
    error: str = ""
    told: bool = False  # mpirun has ended it
    beat: dict = dataclasses.field(default_factory=dict)  # its last report (hetu/process/watch.py)
    stopped: bool = False  # its guard has found it stopped by a signal
    words: bytes = b""  # the traceback or line that it ended with

    def describe(self):
        return f"worker {self.number} ({self.host}, pid {self.pid})" if self.pid else f"worker {self.number}"

    def end(self):
        """Describes the worker's end."""
        return self.error or ending(self.code)

    def death(self):
        at_start = " while Open MPI started in it" * self.unstarted()
        return f"{self.describe()}{':' if self.error else ''} {self.end()}{at_start}"

    def ended_by_mpirun(self):
        return self.told and self.code == -signal.SIGTERM

    def distance(self):
        """Returns the distance from the cause of a failure. 0: ended by itself. 1: ended from outside. LOST_ANOTHER: has
        lost another worker. 3: ended by mpirun."""
        if self.code not in FOLLOWERS:
            return 0
        if self.code != -signal.SIGTERM:
            return LOST_ANOTHER
        return 3 if self.told else 1

    def unstarted(self):
        """Returns true if Open MPI could not start in the worker, and has ended it with a meaningless status."""
        return self.mpi == "starts" and (self.code or 0) > 0


class StartCommand(NamedTuple):
    """A command that starts the workers of a part. name: "mpirun" or "run_workers", for messages."""
    name: str
    arguments: list
    environment: dict


class Part:
    """The process that starts these `workers` of the job: mpirun, or run_workers.py on one host without Open MPI."""

    def __init__(self, number, workers):
        self.number = number
        self.workers = workers
        self.process = None
        self.name = ""  # of the starter
        self._remote = False  # workers are on several hosts
        self.failed_at = None  # time of the first failure of a worker
        self.lost_at = None  # time of the decision to continue without this part
        self.loss = ""  # the reason for that decision
        self.killed = False  # the starter was killed before any worker failed
        self.blamed = None  # the worker that failed first
        self._essence = None  # of the last words that were printed
        self.lost_host = False  # one of its hosts has fallen silent
        self._pressed = False  # SIGTERM was sent to the starter
        self._text = {1: b"", 2: b""}
        self._streams = 0  # number of open streams
        for worker in workers:
            worker.part = self

    def start(self, command, locks=(), remote=False):
        """Starts the workers by a StartCommand, which inherits the job's locks. Returns its streams as (1 or 2, stream).

        The starter ends with heturun. On one host this happens by SIGKILL: after a SIGTERM, mpirun would soon kill the
        guards, and slow commands would outlive them. With several hosts it happens by SIGTERM, because mpirun must inform
        its daemons.
        """
        me, last = os.getpid(), signal.SIGTERM if remote else signal.SIGKILL
        self.name, self._remote = command.name, remote
        self.process = subprocess.Popen(
            command.arguments, env=command.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=True, pass_fds=locks,
            preexec_fn=lambda: processes.die_with_parent(last, me))
        self._streams = 2
        return (1, self.process.stdout), (2, self.process.stderr)

    def take(self, number, stream):
        """Reads the starter's output. Returns true if the stream is still open."""
        data = os.read(stream.fileno(), 65536)
        self._streams -= not data
        self._text[number] += data
        return bool(data)

    def text(self):
        """Returns the starter's output since the last call. Returns nothing if a worker's failure explains the end, because
        heturun has already reported it. Workers' output does not come this way, except Open MPI's messages when it could
        not start in them."""
        explained = self.failed_at and not (self.blamed and self.blamed.unstarted())
        kept = ""
        for number, text in self._text.items():
            blocks = re.split(r"^-{20,}$\n?", text.decode(errors="replace"), flags=re.M)
            said = "" if explained else "".join(b for b in blocks if b.strip())
            self._text[number] = b""
            kept += said if said.endswith("\n") or not said else said + "\n"
        return kept.encode()

    def ended(self, statuses):
        """Returns true if the starter has ended, and all its output has arrived."""
        return self.process.pid in statuses and not self._streams

    def code(self, statuses):
        """Returns the starter's exit status, or minus the number of the signal that killed it, or None while it runs."""
        status = statuses.get(self.process.pid)
        return None if status is None else os.waitstatus_to_exitcode(status)

    def note_failure(self):
        if self.failed_at is None:
            self.failed_at = time.monotonic()

    def note_starter(self, statuses):
        """Notes the starter's death by a signal, unless a worker failed by itself before. The ends of its workers only
        follow from it, although heturun may learn of them first."""
        follow = self.blamed is None and not any(w.code and w.code not in FOLLOWERS for w in self.workers)
        if follow and not self.killed and (self.code(statuses) or 0) < 0:
            self.killed = True
            self.note_failure()

    def failure(self, now, statuses, untold):
        """Returns the arguments of Job._fail(), from heturun's exit status on, for the first failure. Skips workers that
        failed because of it.
        Returns None while the cause may still be reported by a worker that has not ended, or by another process if `untold`
        is true."""
        early = now - self.failed_at < BLAME_WINDOW_S
        if self.killed:
            return None if early else self.without_starter(statuses)
        failed = [worker for worker in self.workers if worker.code]
        worker = min(failed, key=Worker.distance)
        if worker.distance() and early and (untold or any(other.code is None for other in self.workers)):
            return None
        left = [other.describe() for other in self.workers if other.code == 0]
        if worker.ended_by_mpirun() and left:  # they ended without MPI_Finalize, which mpirun treats as a failure
            return COMM, f"{', '.join(left)} exited with status 0 without leaving the job, and {worker.death()}"
        stopped = [other.describe() for other in self.workers if self._was_stopped(other)]
        if worker.distance() == LOST_ANOTHER and stopped:
            return COMM, f"{', '.join(stopped)} {STOPPED}", "ending"
        self.blamed = worker
        return COMM if worker.unstarted() else status_of(worker.code), worker.death()

    def _was_stopped(self, worker):
        """Returns true if a signal has stopped a worker, and others may have waited for it in vain. Its guard reports that
        after a while; on a busy machine, the others may give up before. After the first failure, mpirun may have ended the
        stopped worker, too."""
        if worker.code is not None:
            return worker.stopped and worker.told
        return worker.stopped or (not self._remote and worker.pid > 0 and processes.is_stopped(worker.pid))

    def last_words(self):
        """Returns [(worker, lines for standard error)] once the cause is known: the traceback or line of the blamed worker,
        and one line for each other traceback that neither follows from it nor says the same."""
        said = []
        for worker in sorted((w for w in self.workers if w.words), key=lambda w: w is not self.blamed):
            words, worker.words = worker.words, b""
            text = last_words.essence(words)
            if worker is self.blamed or (self._essence is None and worker.code not in FOLLOWERS):
                said.append((worker, words))
            elif worker.code not in FOLLOWERS and text != self._essence and last_words.is_traceback(words):
                said.append((worker, f"failed too: {text}\n".encode()))
            else:
                continue
            self._essence = text
        return said

    def without_starter(self, statuses):
        """Returns (heturun's exit status, reason) if the starter ended before its workers, else None."""
        left = [str(worker.number) for worker in self.workers if worker.code != 0]
        if not left:
            return None
        code = self.code(statuses)
        missing = f"worker{'s' * (len(left) > 1)} {', '.join(left)}"
        return status_of(code) or 1, f"{self.name} {ending(code)} before {missing} ended"

    def waits_in_vain(self):
        """Returns true if all workers have ended or are lost, and one of their hosts is lost. mpirun and ssh would wait for
        that host."""
        return self.lost_host and all(worker.code is not None for worker in self.workers)

    def press(self, since, now, statuses):
        """Ends the starter if it does not end by itself after the decision at time `since`."""
        if not self._pressed and (self.waits_in_vain() or now - since > FORCE_MPIRUN_S):
            self._pressed = True
            self.signal(signal.SIGTERM, statuses)
            self.signal(signal.SIGCONT, statuses)  # if it was stopped

    def signal(self, number, statuses):
        """Sends a signal to the starter if it runs. Popen.send_signal would take its exit status away from `statuses`."""
        if self.process.pid not in statuses:
            processes.signal_to(os.kill, self.process.pid, number)

    def kill(self, statuses):
        """Kills the starter, if it runs, and all its descendants."""
        if self.process.pid not in statuses:
            for pid in [*processes.descendants(self.process.pid), self.process.pid]:
                processes.signal_to(os.kill, pid, signal.SIGKILL)

"""Starts the workers of a job on one host without Open MPI, as `python3 -I -S run_workers.py WORKERS ADDRESS DIRECTORIES
command...`. It takes mpirun's place: it forks a guard per worker (guard.py), waits for them, and ends with the
status of the first one that failed. heturun decides when the workers of a failed job end, and tells it to the guards itself.

Workers get the variables that Open MPI would set, so that scripts which read them run unchanged.
"""
import signal

HELD_BACK = {signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT}
if __name__ == "__main__":
    # Before anything else: until guard.main handles these signals, they would end the process.
    signal.pthread_sigmask(signal.SIG_BLOCK, HELD_BACK)
    import gc
    gc.disable()  # imported objects stay alive, and guards share their memory
    import sys
    # -I leaves the package out
    sys.path.append(__file__.rpartition("/hetu/launch/")[0])
import os  # noqa: E402
import time  # noqa: E402

from hetu.launch import guard, processes  # noqa: E402

AWAITED = {signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT}
# Time for heturun to end the guards after a failure, and for guards to end after SIGTERM.
PATIENCE_S = guard.TERM_GRACE_S + 2.0


def variables(rank, workers):
    """Returns the variables of a worker of this host."""
    return {"OMPI_COMM_WORLD_SIZE": str(workers), "OMPI_COMM_WORLD_RANK": str(rank),
            "OMPI_COMM_WORLD_LOCAL_SIZE": str(workers), "OMPI_COMM_WORLD_LOCAL_RANK": str(rank)}


def fork_guard(rank, workers, arguments):
    """Starts the guard of a worker. Returns its process id."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.setpgid(0, 0)  # a signal to the group of this process doesn't reach guards
            os.environ.update(variables(rank, workers))
            status = guard.main(arguments, HELD_BACK | AWAITED)
        finally:
            os._exit(status)
    return pid


class Guards:
    """The guards of all workers. `started`: their process ids."""

    def __init__(self, started):
        self._living = set(started)
        self._statuses = {}
        self._deadline = None  # time of the next signal to guards that are left
        self._signal = signal.SIGTERM

    def wait(self):
        """Returns the status of the first guard that failed, or 0, once all have ended."""
        status = 0
        while self._living:
            self._take(signal.sigtimedwait(AWAITED, 1.0 if self._deadline is None else 0.1))
            processes.reap(self._statuses)
            for pid in self._living & set(self._statuses):
                self._living.remove(pid)
                code = os.waitstatus_to_exitcode(self._statuses[pid])
                status = status or (128 - code if code < 0 else code)
            if status and self._deadline is None:
                self._deadline = time.monotonic() + PATIENCE_S
            if self._deadline is not None and time.monotonic() >= self._deadline:
                self._end()
        return status

    def _take(self, received):
        if received is not None and received.si_signo != signal.SIGCHLD:
            self._end()

    def _end(self):
        """Ends the guards: by SIGTERM, which lets them end their commands, and later by SIGKILL."""
        for pid in self._living:
            processes.signal_to(os.kill, pid, self._signal)
        self._signal, self._deadline = signal.SIGKILL, time.monotonic() + PATIENCE_S


def main(argv):
    workers, arguments = int(argv[0]), argv[1:]
    signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # ignored signals can't be awaited
    return Guards([fork_guard(rank, workers, arguments) for rank in range(workers)]).wait()


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))  # skips destructors; nothing needs them

"""One mpirun and its workers: the whole job, or, where a job goes on without a dead pipeline, one of its pipelines.
Used by hetu/supervise.py."""
import os
import re
import signal
import subprocess
import time

from hetu import guard

FORCE_MPIRUN_S = guard.TERM_GRACE_S + 1.0  # after the decision to end: SIGTERM to mpirun
FORCE_ALL_S = guard.TERM_GRACE_S + 3.0  # and SIGKILL to whatever is left here


class Part:
    """`workers` are those of the job that this mpirun starts."""

    def __init__(self, number, workers):
        self.number = number
        self.workers = workers
        self.process = None
        self.failed_at = None  # when its first worker failed
        self.lost_at = None  # when it was decided to go on without it
        self.loss = ""  # why
        self._force = 0  # how far its end has been forced
        self._text = {1: b"", 2: b""}
        self._streams = 0  # still open
        for worker in workers:
            worker.part = self

    def start(self, argv, environment):
        """Starts mpirun; gives its streams as (1 or 2, stream)."""
        me = os.getpid()
        self.process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
            env=environment, preexec_fn=lambda: guard.die_with_parent(signal.SIGTERM, me))
        self._streams = 2
        return (1, self.process.stdout), (2, self.process.stderr)

    def take(self, number, stream):
        """Reads what mpirun says; returns whether the stream is still open."""
        data = os.read(stream.fileno(), 65536)
        self._streams -= not data
        self._text[number] += data
        return bool(data)

    def text(self):
        """[(1 or 2, what mpirun said since the last call)], unless a worker's failure explains the end: then heturun has
        said it, and mpirun only complains of being ended. Workers' output does not come this way."""
        kept = []
        for number, text in self._text.items():
            blocks = re.split(r"^-{20,}$\n?", text.decode(errors="replace"), flags=re.M)
            said = "" if self.failed_at else "".join(b for b in blocks if b.strip())
            self._text[number] = b""
            if said:
                kept.append((number, said.encode()))
        return kept

    def ended(self, statuses):
        """Whether mpirun has ended, and all it said is here."""
        return self.process.pid in statuses and not self._streams

    def note_failure(self):
        if self.failed_at is None:
            self.failed_at = time.monotonic()

    def press(self, since, now, statuses):
        """Ends mpirun when it does not end by itself after the decision of `since`. True once nothing milder is left."""
        if self.process.pid in statuses:
            return False
        if self._force == 0 and now - since > FORCE_MPIRUN_S:
            self._force = 1
            self.process.send_signal(signal.SIGTERM)
        elif self._force == 1 and now - since > FORCE_ALL_S:
            self._force = 2
        return self._force == 2

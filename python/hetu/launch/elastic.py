"""heturun --elastic: a training that goes on while machines come and go.

The job is a series of rounds. A round is a job of its own on the machines there are, with a layout that suits them. It ends
when the training ends; when the list of machines changes, after the workers have saved; or when a worker is lost. The next
round continues from the newest checkpoint. No process and no connection of a round outlives it."""
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

from hetu import drill
from hetu.counted import counted
from hetu.launch import network, processes, remote
from hetu.launch.elastic_layout import best_layout
from hetu.launch.elastic_trainings import NOTES, Notes
from hetu.launch.run_folder import JOINED, RUNS

POLL_S = 0.5  # between two looks at the list of machines
SETTLED_S = 1.0  # a list that looks half-written counts once it has stayed the same for this time
MOST_VAIN = 3  # failed rounds in a row without a new checkpoint, after which the job ends
HANG_LIMIT_S = 120.0  # --hang-limit of an elastic job
MOST_LIMIT_S = 9999.0  # the most that --hang-limit takes
WAIT_NOTE_S = 60.0  # between two lines that say that the job waits for machines
# Statuses of a round that another round would repeat: wrong input (hetu.process.errors), and a command that can't be started
# (126, 127).
FINAL = (2, 3, 126, 127)
WRONG = 2  # exit status of a command that doesn't take part
HOST = r"[A-Za-z0-9._:][A-Za-z0-9._:-]*"  # the name or address of a host; ssh takes a name with "-" first as an option
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


class MachinesError(ValueError):
    """A list of machines that can't be read."""


def read_machines(path, each=1):
    """Returns {host: workers} of a list of machines: a line `HOST` or `HOST WORKERS` each; `#` begins a comment. A line
    without a number counts `each` workers. Raises MachinesError."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise MachinesError(f"--machines {path} can't be read: {error}") from None
    found = {}
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) > 2 or not re.fullmatch(HOST, words[0]) or (
                len(words) == 2 and not re.fullmatch(r"[0-9]{1,4}", words[1])):
            raise MachinesError(f"--machines {path}, line {number}: expected HOST or HOST WORKERS, such as 'w0 4', got "
                                f"'{line.strip()[:60]}'")
        found[words[0]] = found.get(words[0], 0) + (int(words[1]) if len(words) == 2 else each)
    return {host: workers for host, workers in found.items() if workers}


def is_whole(path):
    """Returns false for a file that may be half-written: it is empty or missing, or its last line has no end. Shells empty a
    file before they write it."""
    try:
        with open(path, "rb") as file:
            return file.read()[-1:] == b"\n"
    except OSError:
        return False


class Machines:
    """The machines of a job: of a list that may change, or a fixed number of workers on this host. `each`: the workers of a
    host whose line has no number."""

    def __init__(self, path, workers, key, say, each=1):
        self.path, self.workers, self.key, self.say, self.each = path, workers, key, say, each
        self.known = None  # the newest list that could be read
        self.coming = None  # (a list that differs, time when it was first read)
        self.stamp = None  # of the file that was read last
        self.missing = set()  # hosts that didn't answer; they count again once the file is written anew
        self.last_error = ""

    def listed(self):
        """Returns {host: workers}. While the list is wrong, it stays as it was; an error is said once."""
        if not self.path:
            return {"localhost": self.workers}
        try:
            stamp = os.stat(self.path).st_mtime_ns if os.path.exists(self.path) else None
            self._take(read_machines(self.path, self.each), stamp, is_whole(self.path), time.monotonic())
            self.last_error = ""
        except MachinesError as error:
            if self.known is None:
                raise
            if str(error) != self.last_error:
                self.say(f"{error}; the machines stay as they are")
                self.last_error = str(error)
        return {host: workers for host, workers in self.known.items() if host not in self.missing}

    def _take(self, found, stamp, whole, now):
        """Takes a list that was read; `whole` is false if it looks half-written. Raises MachinesError if it names this host
        twice."""
        if found == self.known:
            self.coming = None
        elif self.known is not None and not whole and (self.coming is None or self.coming[0] != found):
            self.coming = found, now
        elif self.known is None or whole or now - self.coming[1] >= SETTLED_S:
            own = [host for host in found if network.is_this_host(host)]
            if len(own) > 1:
                raise MachinesError(f"--machines {self.path}: {' and '.join(own)} are the same machine; write one line for "
                                    "it")
            self.known, self.coming = found, None
        if stamp != self.stamp:
            self.stamp, self.missing = stamp, set()

    def answering(self):
        """Returns the listed machines that ssh reaches. The others are left out until the list is written anew."""
        listed = self.listed()
        others = [host for host in listed if not network.is_this_host(host)]
        for host, (code, _, error) in (remote.ask(others, self.key, "", "", others) if others else {}).items():
            if code is None or code == 255:
                self.say(f"{host} is left out: {remote.of_ssh(error, self.key)}")
                self.missing.add(host)
                del listed[host]
        return listed


class Elastic:
    """One elastic job. `flags`: heturun's flags for every round. `training`: from elastic_trainings.training_of().
    `program`: the path of heturun (default: the running program). `run_folder`: the path of the job's run folder, or None.
    `faults`: those of HETU_FAULT (hetu/drill.py)."""

    def __init__(self, machines, flags, training, hang_limit_s, say, program=None, run_folder=None, faults=()):
        self.runs = {JOINED: run_folder} if run_folder else {RUNS: "none"}
        self.machines, self.own_flags, self.training, self.say = machines, flags, training, say
        self.program = os.path.abspath(program or sys.argv[0])
        self.hang_limit_s = HANG_LIMIT_S if hang_limit_s is None else hang_limit_s
        self.patience = 1.0  # factor of the limit; it grows while rounds hang without a new checkpoint
        self.first = training.first
        self.process = None
        self.asked = None  # the signal that ends the job
        self.rounds = 0
        self.faults = list(faults)
        self.happened = set()  # faults that have happened, in any round

    def run(self):
        """Runs rounds to the end of the training. Returns the exit status."""
        if self.faults:
            self.say(f"faults on purpose: {drill.VARIABLE}={drill.text_of(self.faults)}")
        status = self._run_rounds()
        if missed := [fault for fault in self.faults if fault not in self.happened]:
            self.say(f"{len(missed)} of {len(self.faults)} faults on purpose did not happen: {drill.text_of(missed)}")
        return status

    def _run_rounds(self):
        for number in processes.unignored(SIGNALS):
            signal.signal(number, self._take_signal)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        vain = 0
        while True:
            machines = self._await_machines()
            if machines is None:
                return 128 + self.asked if self.asked != signal.SIGUSR1 else 0
            before = self.training.newest_checkpoint()
            status, changed, notes = self._round(machines)
            if fault := self.training.fault(notes, status):
                self.say(fault)
                return status or WRONG
            if self.asked is not None or (status == 0 and not changed) or status in FINAL:
                return status
            if status == 0:
                vain = 0
                continue
            vain = 0 if notes.saved or self.training.newest_checkpoint() != before else vain + 1
            self.patience = 1.0 if not vain else self.patience * (2.0 if notes.hangs else 1.0)
            if vain == MOST_VAIN:
                self.say(f"{vain} rounds in a row ended with no new checkpoint; the job ends with status {status}")
                return status
            self.say(f"the round ended with status {status}{notes.last_step(self.training.saved_step())}; the training "
                     + self.training.continuation())

    def _take_signal(self, number, _frame):
        self.asked = signal.Signals(number) if self.asked is None else self.asked
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def _await_machines(self):
        """Returns machines for at least one worker, or None if a signal has ended the job before there were any."""
        said = -WAIT_NOTE_S
        while self.asked is None:
            machines = self.machines.answering()
            if best_layout(self.first, sum(machines.values())):
                return machines
            if time.monotonic() - said >= WAIT_NOTE_S:
                self.say(f"no machine is left; the job waits for a line in {self.machines.path}")
                said = time.monotonic()
            time.sleep(POLL_S)
        return None

    def _round(self, machines):
        """Runs a round on these machines. Returns its status, whether a change of the machines ended it, and its workers'
        Notes."""
        layout = best_layout(self.first, sum(machines.values()))
        used = use(machines, layout.workers)
        spare = sum(machines.values()) - layout.workers
        self.rounds += 1
        self.say(f"round {self.rounds}: {layout} on " + ", ".join(f"{host} {count}" for host, count in used.items())
                 + (f"; {counted(spare, 'worker')} idle" if spare else ""))
        with tempfile.TemporaryDirectory(prefix="hetu-elastic-") as folder:
            me, noted = os.getpid(), os.path.join(folder, "notes")
            environment = {**os.environ, **self.training.environment(layout, used), NOTES: noted, **self.runs,
                           drill.ROUND_VARIABLE: drill.text_of(drill.of_round(self.faults, self.rounds))}
            self.process = subprocess.Popen(self._argv(used, layout, folder), start_new_session=True, env=environment,
                                            preexec_fn=lambda: start_round(me))
            if self.asked is not None:  # the signal came before the process
                self.process.send_signal(self.asked)
            changed = False
            while self.process.poll() is None:
                if not changed and self.asked is None and self._should_change(used, layout):
                    changed = True
                    self.process.send_signal(signal.SIGUSR1)
                try:
                    self.process.wait(POLL_S)
                except subprocess.TimeoutExpired:
                    continue
            notes = Notes(noted)
        self.happened.update(fault for fault in drill.of_round(self.faults, self.rounds, keep=True)
                             if str(fault._replace(round=0)) in notes.faults)
        code = self.process.returncode
        return (code if code >= 0 else 128 - code), changed, notes

    def _should_change(self, used, layout):
        """Returns true if the list lacks a machine of this round, or has enough others for a larger layout."""
        now = self.machines.listed()
        fewer = {host: now.get(host, 0) for host, count in used.items() if now.get(host, 0) < count}
        if fewer:
            changes = [f"{host} has {counted(left, 'worker')} ({used[host]} before)" if left else f"without {host}"
                       for host, left in fewer.items()]
            self.say(f"the machines change: {', '.join(changes)}; the workers save")
            return True
        better = best_layout(self.first, sum(now.values()))
        if better is not None and better.workers > layout.workers:
            self.say(f"the machines change: there are {sum(now.values())} workers; the workers save")
            return True
        return False

    def _argv(self, used, layout, folder):
        """Returns the command line of a round: heturun without --elastic."""
        limit = ["--hang-limit", f"{min(MOST_LIMIT_S, self.hang_limit_s * self.patience):.0f}"]
        return [sys.executable, self.program, *place(used, folder), *self.own_flags, *limit,
                *self.training.command(layout, self.rounds == 1)]


def start_round(parent):
    """Prepares the process of a round, before its program starts. SIGUSR1 is held back until heturun handles it; otherwise a
    change of the machines would kill a round that is just starting."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    processes.die_with_parent(signal.SIGTERM, parent)


def use(machines, workers):
    """Returns the first `workers` workers of the machines, by host."""
    used = {}
    for host, count in machines.items():
        taken = min(count, workers - sum(used.values()))
        if taken:
            used[host] = taken
    return used


def place(used, folder):
    """Returns heturun's flags for {host: workers}. A cluster file for several hosts goes to `folder`."""
    if [network.is_this_host(host) for host in used] == [True]:
        return ["-w", str(sum(used.values()))]
    file = os.path.join(folder, "machines.yml")
    with open(file, "w", encoding="utf-8") as out:
        out.write("nodes:\n" + "".join(
            f"  - host: {host}\n    servers: 0\n    workers: {count}\n    chief: {str(not i).lower()}\n"
            for i, (host, count) in enumerate(used.items())))
    return ["-c", file]

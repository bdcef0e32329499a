"""Processes below heturun or a guard: lifetimes, discovery and termination."""
import ctypes
import os
import signal
import time

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
STOPPED_FOR_S = 4.0  # time that a process must stay stopped before it is reported
PAUSE_S = 2.0  # an observer that has not checked for this time was itself stopped or blocked, so it restarts its timers
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(signal_number, parent):
    """Sends a signal to this child process when its parent ends. Call it between fork and exec."""
    _libc.prctl(PR_SET_PDEATHSIG, signal_number, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def memory_of(pid):
    """Returns the bytes of memory that a process of this host uses, or 0."""
    try:
        with open(f"/proc/{int(pid)}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def memory_kills():
    """Returns how many processes this host has killed for lack of memory since it was started; 0 if it doesn't say."""
    try:
        with open("/proc/vmstat", encoding="ascii") as file:
            return next((int(line.split()[1]) for line in file if line.startswith("oom_kill ")), 0)
    except OSError:
        return 0


def unignored(numbers):
    """Returns the signals without SIGHUP if this process has inherited to ignore it: nohup means that the job survives the
    terminal."""
    return [number for number in numbers if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN]


def adopt_orphans():
    """Makes this process the parent of descendants whose own parent ends."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def families():
    """Returns {parent: its living children} for all processes."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                state, parent = file.read().rpartition(b")")[2].split()[:2]
        except OSError:
            continue
        if state not in (b"Z", b"X"):
            found.setdefault(int(parent), []).append(int(name))
    return found


def children(parent):
    """Returns the process ids of the living children of `parent`."""
    return families().get(parent, [])


def descendants(root):
    """Returns the process ids of all living descendants of `root`."""
    below_of = families()
    found, todo = [], [root]
    while todo:
        below = below_of.get(todo.pop(), [])
        found += below
        todo += below
    return found


def ways_of(pid, number):
    """Returns (True if the process has a handler for the signal, True if it blocks the signal)."""
    masks = {}
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            for line in file:
                name, _, value = line.partition(":")
                if name in ("SigCgt", "SigBlk"):
                    masks[name] = int(value, 16) >> (number - 1) & 1
    except OSError:
        return False, False
    return bool(masks.get("SigCgt")), bool(masks.get("SigBlk"))


def is_stopped(pid):
    """Returns true if a signal has stopped a process (SIGSTOP, Ctrl-Z). A process that a debugger holds doesn't count."""
    return _state(pid) == b"T"


def runs(pid):
    """Returns true if a process exists that isn't stopped and hasn't ended."""
    return _state(pid) in (b"R", b"S", b"D", b"I")


def _state(pid):
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0]
    except (OSError, IndexError):
        return b""


class StopWatch:
    """Finds processes that stay stopped. A stopped process keeps its connections open, so there is no other sign."""

    def __init__(self):
        self._since = {}  # {pid: time when it was first found stopped}
        self._looked = 0.0

    def stay_stopped(self, pids, now):
        """Returns those of `pids` that have been stopped for STOPPED_FOR_S. Call it about once a second with all of them.
        If the caller itself was stopped, the times restart."""
        if now - self._looked > PAUSE_S:
            self._since = {}
        self._looked = now
        self._since = {pid: self._since.get(pid, now) for pid in pids if is_stopped(pid)}
        return [pid for pid, since in self._since.items() if now - since >= STOPPED_FOR_S]


def reap(into):
    """Collects ended children into the dict pid -> wait status."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        into[pid] = status


def kill_descendants(into, grace_s=0.0):
    """Waits `grace_s` for descendants to end by themselves, then kills the remaining ones. Gives up after 2 s more."""
    start = time.monotonic()
    while time.monotonic() - start < grace_s + 2.0:
        reap(into)
        left = descendants(os.getpid())
        if not left:
            return
        if time.monotonic() - start >= grace_s:
            for pid in left:
                signal_to(os.kill, pid, signal.SIGKILL)
        time.sleep(0.01)


def signal_to(function, target, number):
    """Sends a signal to a process (os.kill) or a group (os.killpg), which may have ended."""
    try:
        function(target, number)
    except (ProcessLookupError, PermissionError):
        pass

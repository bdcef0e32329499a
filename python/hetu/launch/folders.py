"""Folders of a job in the temporary folder and in /dev/shm, and those that jobs left which were killed as a whole.

Whoever belongs to a job holds a lock on the file `held` of each of its folders, or has inherited one; the system takes locks
from the dead. So a folder whose lock is free belongs to no living process, whatever has become of process ids. Used by
supervise.py, guard.py and keeper.py; the standard library alone."""
import fcntl
import os
import re

OURS = re.compile(r"hetu-[0-9a-f]{12}-\w{8}")  # as make() names them
HELD = "held"


def short_place():
    """Where to make the job's folder: Open MPI builds socket names of its own below it, at most 108 bytes in all."""
    import tempfile  # a guard has no time for it

    parent = tempfile.gettempdir()
    return parent if len(os.fsencode(parent)) < 40 and not re.search(r"[:\s]", parent) else "/tmp"


def make(parent, job):
    """A new folder of the job, and the descriptors of its lock: none where the file system has no locks, and then the folder
    is never taken for left behind."""
    import tempfile

    while True:
        path = tempfile.mkdtemp(prefix=f"hetu-{job}-", dir=parent)
        file = os.path.join(path, HELD)
        lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(lock, _host())
        try:
            fcntl.flock(lock, fcntl.LOCK_SH)
        except OSError:
            os.close(lock)
            os.unlink(file)
            return path, []
        if os.fstat(lock).st_nlink:
            return path, [lock]
        os.close(lock)  # another job has swept it away in the moment before


def hold(paths):
    """Descriptors of locks on those of the folders that are there and have one."""
    locks = []
    for path in paths:
        try:
            lock = os.open(os.path.join(path, HELD), os.O_RDWR | os.O_NOFOLLOW)
            locks.append(lock)
            fcntl.flock(lock, fcntl.LOCK_SH)
        except OSError:  # heturun is gone, and the folder with it; or it has no lock
            continue
    return locks


def remove(paths):
    """Removes a job's own folders at its end, whoever holds them."""
    for path in paths:
        _remove_tree(path, ignore_errors=True)


def sweep(parents):
    """Removes this user's folders that belong to no living process; returns their paths. What has another name or owner, or
    no lock's file of this host, is not looked at."""
    removed = []
    for parent in sorted({os.path.realpath(parent) for parent in parents}):
        try:
            with os.scandir(parent) as entries:
                found = sorted(entry.path for entry in entries if OURS.fullmatch(entry.name) and _is_own(entry))
        except OSError:  # there is no such place here
            continue
        removed += [path for path in found if _remove(path)]
    return removed


def remove_open_mpi(pids):
    """Removes the folders that Open MPI keeps for these mpiruns of this user, which were killed and so could not."""
    import glob
    import tempfile

    place, user = glob.escape(tempfile.gettempdir()), os.getuid()
    for pid in pids:
        for path in glob.glob(f"{place}/ompi.*.{user}/pid.{pid}"):  # Open MPI 4: one folder for all of a user's mpiruns
            _remove_tree(path, True)
            try:
                os.rmdir(os.path.dirname(path))
            except OSError:  # another mpirun's folder is in it
                pass
        for path in glob.glob(f"{place}/prterun.*.{pid}.{user}"):  # Open MPI 5
            _remove_tree(path, True)


def _remove_tree(path, ignore_errors=False):
    import shutil  # a guard, which removes nothing, has no time for it

    shutil.rmtree(path, ignore_errors)


def _host():
    return os.uname().nodename.encode()


def _is_own(entry):
    try:
        return entry.is_dir(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_uid == os.geteuid()
    except OSError:  # it has gone
        return False


def _remove(path):
    """Whether the folder was nobody's and is gone. The lock's file goes last: what is left half removed is found again."""
    try:
        lock = os.open(os.path.join(path, HELD), os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        if os.read(lock, 256) != _host():
            return False
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for name in os.listdir(path):
            entry = os.path.join(path, name)
            if os.path.isdir(entry) and not os.path.islink(entry):
                _remove_tree(entry)
            elif name != HELD:
                os.unlink(entry)
        os.unlink(os.path.join(path, HELD))
        os.rmdir(path)
        return True
    except OSError:
        return False
    finally:
        os.close(lock)

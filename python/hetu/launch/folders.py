"""Folders of a job in the temporary folder and in /dev/shm, and cleanup of folders from jobs that were killed as a whole.

Every process of a job holds a lock on the file `held` of each of the job's folders, or has inherited one. The system
releases the locks of dead processes. So a folder whose lock is free belongs to no living process, even if process ids have
been reused. supervise.py, guard.py and keeper.py use this module. It uses only the standard library.
"""
import fcntl
import os
import re

OURS = re.compile(r"hetu-[0-9a-f]{12}-\w{8}")  # names that make() gives
HELD = "held"


def short_place():
    """Returns a parent for the job's folder. Open MPI creates sockets below it, whose paths may have at most 108 bytes."""
    import tempfile  # imported late, to keep the start of a guard short

    parent = tempfile.gettempdir()
    return parent if len(os.fsencode(parent)) < 40 and not re.search(r"[:\s]", parent) else "/tmp"


def make(parent, job):
    """Creates a folder of the job. Returns its path and the descriptors of its lock. There are none if the file system has
    no locks; such a folder is never removed by sweep()."""
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
        os.close(lock)  # another job removed the folder before it was locked


def hold(paths):
    """Returns descriptors of locks on those of the folders that exist and have a lock."""
    locks = []
    for path in paths:
        try:
            lock = os.open(os.path.join(path, HELD), os.O_RDWR | os.O_NOFOLLOW)
            locks.append(lock)
            fcntl.flock(lock, fcntl.LOCK_SH)
        except OSError:  # heturun and its folder are gone, or the folder has no lock
            continue
    return locks


def remove(paths):
    """Removes a job's own folders at its end, whatever process holds them."""
    for path in paths:
        _remove_tree(path, ignore_errors=True)


def sweep(parents):
    """Removes this user's folders that belong to no living process, and returns their paths. Folders with another name or
    owner, or without a lock file of this host, are not touched."""
    removed = []
    for parent in sorted({os.path.realpath(parent) for parent in parents}):
        try:
            with os.scandir(parent) as entries:
                found = sorted(entry.path for entry in entries if OURS.fullmatch(entry.name) and _is_own(entry))
        except OSError:  # the folder doesn't exist on this host
            continue
        removed += [path for path in found if _remove(path)]
    return removed


def remove_open_mpi(pids):
    """Removes the folders that Open MPI keeps for these mpiruns of this user, which were killed and could not do it."""
    import glob
    import tempfile

    place, user = glob.escape(tempfile.gettempdir()), os.getuid()
    for pid in pids:
        for path in glob.glob(f"{place}/ompi.*.{user}/pid.{pid}"):  # Open MPI 4: one folder for all mpiruns of a user
            _remove_tree(path, True)
            try:
                os.rmdir(os.path.dirname(path))
            except OSError:  # it contains another mpirun's folder
                pass
        for path in glob.glob(f"{place}/prterun.*.{pid}.{user}"):  # Open MPI 5
            _remove_tree(path, True)


def _remove_tree(path, ignore_errors=False):
    import shutil  # imported late, because guards don't need it

    shutil.rmtree(path, ignore_errors)


def _host():
    return os.uname().nodename.encode()


def _is_own(entry):
    try:
        return entry.is_dir(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_uid == os.geteuid()
    except OSError:  # it has been removed
        return False


def _remove(path):
    """Removes a folder that no process holds, and returns true on success. The lock file is removed last, so that a later
    sweep finds a partly removed folder."""
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

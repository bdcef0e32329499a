"""Checks that this host has enough resources for its workers: open files, space in the temporary folder and shared memory.

Open MPI starts without checking. It then hangs, or fails with messages that don't name the cause. The amounts were found by
experiment (Open MPI 4.1.4) and rounded up.
"""
import os
import resource

FILES, FILES_PER_WORKER = 64, 6  # files that mpirun opens, and files per worker
TEMPORARY = 16 << 20  # bytes of PMIx's tables in the temporary folder
SHARED_PER_WORKER = 5 << 20  # bytes of a worker's segment, into which other workers of the host write
SHARED_AT_LEAST = 8 << 20  # bytes below which Open MPI does not start


def allow_files(workers):
    """Raises this process's limit of open files if it is too low. mpirun and the workers inherit it. Raises OSError if that
    is not permitted."""
    needed = FILES + FILES_PER_WORKER * workers
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < needed:
        raise OSError(f"a process may open only {most} files here (ulimit -Hn), and {workers} workers on this host need "
                      f"{needed}; raise the limit")
    if allowed != resource.RLIM_INFINITY and allowed < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed if most == resource.RLIM_INFINITY else most, most))


def shared_folder(temporary, workers, shared="/dev/shm"):
    """Returns the folder in which workers of this host share memory: `shared`, or `temporary` if the former is too small,
    as in containers. Raises OSError if there is too little space for a job."""
    wanted = workers * SHARED_PER_WORKER
    in_shared, in_temporary = _room(shared), _room(temporary)
    if in_temporary < TEMPORARY:
        raise OSError(f"the temporary folder {temporary} has {_kib(in_temporary)} left, and a job needs {_kib(TEMPORARY)} "
                      "there; free some, or set TMPDIR to another folder")
    if in_shared >= wanted:
        return shared
    if in_temporary >= TEMPORARY + wanted:
        return temporary
    if in_shared >= SHARED_AT_LEAST:
        return shared
    raise OSError(f"{shared} has {_kib(in_shared)} left and the temporary folder {temporary} has {_kib(in_temporary)}; "
                  f"{workers} workers need {_kib(wanted)} in the first (docker run --shm-size), or "
                  f"{_kib(TEMPORARY + wanted)} in the other (TMPDIR)")


def _room(folder):
    """Returns the bytes that may be written into a folder, or 0 if it doesn't exist or isn't writable."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize if os.access(folder, os.W_OK | os.X_OK) else 0


def _kib(amount):
    return f"{amount >> 10} KiB"

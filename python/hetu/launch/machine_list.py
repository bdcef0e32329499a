"""heturun add and remove: change the list of machines of an elastic job that runs. The job itself only watches its list
(elastic.py), so these commands have no other way into it than the file, and the file's permissions decide who may do it."""
import contextlib
import fcntl
import os
import pwd
import re

from hetu import files
from hetu.counted import counted
from hetu.launch import network, remote, run_folder
from hetu.launch.elastic import HOST, MachinesError, read_machines
from hetu.launch.found import Found, JobError, find, living


def add(given):
    """Adds workers of a host to the list of a job."""
    if not re.fullmatch(HOST, given.host):
        raise JobError(f"'{given.host[:60]}' is no name or address of a host, such as w2 or 10.0.0.7")
    if given.workers is not None and not 1 <= given.workers <= 9999:
        raise JobError(f"{given.host} {given.workers}: the number of workers must be from 1 to 9999")
    job = chosen(given.job)
    path = list_of(job)
    if why := unreachable(given.host, job.job.get("key")):
        raise JobError(f"{given.host}: {why}; {path} is unchanged")
    with locked(path):
        before = read(path)
        own = [host for host in before if network.is_this_host(host)]
        if given.host not in before and own and network.is_this_host(given.host):
            raise JobError(f"{given.host} and {own[0]} are the same machine: heturun add {own[0]} {given.workers or 1}")
        count = before.get(given.host, 0) + (given.workers or 1)
        if count > 9999:
            raise JobError(f"{given.host} has {before[given.host]} workers in {path}; more than 9999 can't be listed")
        rewrite(path, given.host, count)
    return told(job, path, given.host, before)


def remove(given):
    """Removes a host from the list of a job."""
    job = chosen(given.job)
    path = list_of(job)
    with locked(path):
        before = read(path)
        if given.host not in before:
            raise JobError(f"{given.host[:60]} is not in {path}, which lists {', '.join(before) or 'no machine'}")
        rewrite(path, given.host, 0)
    return told(job, path, given.host, before)


def chosen(text):
    """Returns the Found job of --job, or the only elastic job of this user on this host. Raises JobError."""
    if text is not None:
        return find(text)
    found = [job for job in map(Found, living()) if job.job.get("elastic")]
    if not found:
        raise JobError("no elastic job of yours runs on this host; heturun ps lists your jobs, and --job names one")
    if len(found) > 1:
        raise JobError(f"several elastic jobs run here: {', '.join(job.name for job in found)}; choose one with --job JOB")
    return found[0]


def list_of(job):
    """Returns the path of the list that a job watches. Raises JobError if the job has none, or another user's list."""
    if not job.alive:
        if not run_folder.is_here(job.job):
            raise JobError(f"job {job.name} runs on {job.job.get('host')}: type this there")
        raise JobError(f"job {job.name} doesn't run any more: {job.state()}")
    if not job.job.get("elastic"):
        raise JobError(f"job {job.name} isn't elastic, so its machines stay as they are; start it with heturun --elastic "
                       "--machines FILE")
    path = job.job.get("machines")
    if not path:
        raise JobError(f"job {job.name} has no list of machines, because it was started with -w; start it with --machines "
                       "FILE")
    for file in (f"/proc/{job.job['pid']}", path):
        try:
            owner = os.stat(file).st_uid
        except OSError as error:
            raise JobError(f"the list {path} of job {job.name} can't be read: {error.strerror}; write it anew") from None
        if owner != os.geteuid():
            raise JobError(f"job {job.name} belongs to {name_of(owner)}, and only {name_of(owner)} can change its machines")
    return path


def name_of(user):
    """Returns the name of a user, or the number if it has none."""
    try:
        return f"user {pwd.getpwuid(user).pw_name}"
    except KeyError:
        return f"user {user}"


def unreachable(host, key):
    """Returns the reason why a job can't use a host, or "" if ssh reaches it."""
    if network.is_this_host(host):
        return ""
    try:
        code, _, error = remote.ask([host], key, "", "", [host])[host]
    except OSError as failure:  # there is no ssh
        return str(failure)
    return remote.of_ssh(error, key) if code in (None, 255) else ""


def read(path):
    """Returns {host: workers} of a list. Raises JobError if it has a wrong line."""
    try:
        return read_machines(path)
    except MachinesError as error:
        raise JobError(f"{error}; correct it first") from None


@contextlib.contextmanager
def locked(path):
    """Holds a lock on the list, so that two commands don't lose each other's change. The list is replaced as a whole; so
    whoever gets the lock of a replaced file takes that of the new one. Raises JobError if the list can't be written."""
    while True:
        try:
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise JobError(f"the list {path} can't be written: {error.strerror}") from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            there, here = os.stat(path), os.fstat(file)
            if (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino):
                continue
            yield
            return
        except OSError as error:
            raise JobError(f"the list {path} can't be changed: {error.strerror}") from None
        finally:
            os.close(file)


def rewrite(path, host, count):
    """Replaces the list by one with `count` workers of a host, in one step: the job reads the old list or the new one.
    Other lines and all comments stay as they are."""
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    kept, is_new = [], count > 0
    for line in lines:
        words, mark, comment = line.partition("#")
        if words.split()[:1] != [host]:
            kept.append(line)
        elif is_new:
            kept.append(f"{host} {count}" + (f"  {mark}{comment}" if mark else ""))
            is_new = False
    if is_new:
        kept.append(f"{host} {count}")
    files.write_text(path, "".join(f"{line}\n" for line in kept))


def told(job, path, host, before):
    """Says what has changed. Returns the exit status."""
    now = read(path)
    if host in now:
        print(f"job {job.name}: {host} has {counted(now[host], 'worker')} in {path} ({before.get(host, 0)} before)")
    else:
        left = ", ".join(f"{one} {count}" for one, count in now.items())
        print(f"job {job.name}: {host} is no longer in {path}; " + (
            f"left: {left}" if now else "no machine is left, so the job saves and waits"))
    return 0

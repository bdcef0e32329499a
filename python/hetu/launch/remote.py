"""What heturun asks of the other hosts before it starts anything there: that ssh reaches them, and that they have the
folder, Open MPI and the same Hetu. Each host that fails is one line."""
import json
import os
import shlex
import shutil
import subprocess
import sys
import time

from hetu.launch.identity import identity, package

CONNECT_S = 10  # until ssh gives a host up
ANSWER_S = 30.0  # until an answer that ssh promised has come
NO_FOLDER, NO_MPI, NO_PYTHON, NO_HETU = 41, 42, 43, 44


def ssh_options(key):
    """Options of ssh for every connection: never ask, give up soon; the rest is the ssh configuration's."""
    return ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_S}", *(["-i", key] if key else [])]


def question(daemon, search):
    """The shell command that a host is asked with; the same places are right there as here. `daemon` is "" if it needs no
    Open MPI."""
    path = os.pathsep.join(filter(None, [os.path.dirname(package()), search]))
    folder, daemon, python, file = (
        shlex.quote(p) for p in (os.getcwd(), daemon, sys.executable, os.path.join(package(), "launch", "identity.py")))
    return (f"cd {folder} 2>/dev/null || exit {NO_FOLDER}; test -z {daemon} -o -x {daemon} || exit {NO_MPI}; "
            f"test -x {python} || exit {NO_PYTHON}; test -r {file} || exit {NO_HETU}; "
            f"PYTHONPATH={shlex.quote(path)} exec {python} -m hetu.launch.identity")


def ask(hosts, key, daemon, search, bare=()):
    """{host: (exit status or None for no answer, output, errors)}, all asked at once. Those of `bare` need no Open MPI."""
    if not shutil.which("ssh"):
        raise OSError("ssh is not installed or not in PATH; a job on several hosts needs it (Debian: openssh-client)")
    asked = {host: subprocess.Popen(["ssh", *ssh_options(key), host, question("" if host in bare else daemon, search)],
                                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
             for host in hosts}
    deadline = time.monotonic() + CONNECT_S + ANSWER_S
    answers = {}
    for host, process in asked.items():
        try:
            out, error = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
            answers[host] = (process.returncode, out, error)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            answers[host] = (None, "", "")
    return answers


def of_ssh(error, key):
    """Why ssh did not get through, from what it said."""
    lines = [line.strip() for line in error.splitlines() if line.strip() and not line.startswith(("Warning:", "@"))]
    said = "; ".join(lines[-2:]) or "it said nothing"
    if "Permission denied" in said:
        return f"it refuses {f'the ssh key {key}' if key else 'every ssh key (-i gives one)'}: {said}"
    if "Host key verification failed" in said:
        return f"ssh does not know its host key; connect once by hand: {said}"
    return f"ssh does not reach it: {said}"


def trouble(answer, own, key, daemon):
    """What is wrong with a host, "" if nothing."""
    code, out, error = answer
    told = {
        None: f"it let ssh in, but did not answer in {ANSWER_S:g} s",
        255: of_ssh(error, key),
        NO_FOLDER: f"it has no folder {os.getcwd()}, where the job would run; share it, or make it there too",
        NO_MPI: f"it has no {daemon}; install Open MPI there as it is here",
        NO_PYTHON: f"it has no {sys.executable}, with which heturun runs here",
        NO_HETU: f"it has no Hetu in {package()}; install the same at the same place",
    }
    if code in told:
        return told[code]
    try:
        theirs = json.loads(out.splitlines()[-1]) if code == 0 else None
        if theirs is not None and theirs["sources"] != own["sources"]:
            return (f"it has another version of Hetu (version {theirs['sources']}, here {own['sources']}); install the same "
                    "on all hosts")
        if theirs is not None and own["compiled"] and not theirs["compiled"]:
            return "its Hetu is not compiled; build it there as it is here"
    except (ValueError, KeyError, TypeError, IndexError):
        theirs = None
    if theirs is None:
        return f"it cannot say which Hetu it has (status {code}): {' '.join((error or out).split()[-30:])}"
    return ""


def check(hosts, others, key, daemon, search, bare=()):
    """Asks `others`, those of `hosts` that are not this machine; those of `bare` have no worker, and need no Open MPI.
    Raises OSError with what is wrong, all in one line. Returns warnings: hosts whose Hetu was compiled otherwise, as hosts
    with other processors have it."""
    own = identity()
    answers = ask(others, key, daemon, search, bare)
    found = {host: why for host in others if (why := trouble(answers[host], own, key, daemon))}
    if found:
        first = [f"host {host}: {why}" for host, why in found.items()]
        raise OSError("; ".join(first[:3]) + (f"; and {len(first) - 3} more hosts" if len(first) > 3 else ""))
    said = {host: json.loads(answers[host][1].splitlines()[-1]) if host in answers else own for host in hosts}
    names = {host: theirs["host"] for host, theirs in said.items()}
    for i, host in enumerate(hosts):
        for before in hosts[:i]:
            if names[host] == names[before]:
                raise OSError(f"hosts {before} and {host} are one machine (both call themselves {names[host]}); write one "
                              "node with their sums")
    return [f"host {host} has another build of Hetu ({theirs['compiled']}, here {own['compiled']}): the last bits of "
            "results may depend on which host computes them"
            for host, theirs in said.items() if theirs["compiled"] != own["compiled"]]

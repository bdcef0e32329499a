"""Checks of the other hosts before anything is started there: ssh connects to them, and they have the folder, Open MPI and
the same Hetu. The error has one line for each failing host."""
import json
import os
import shlex
import shutil
import subprocess
import sys
import time

from hetu.launch.identity import identity, package

CONNECT_S = 10  # ssh's timeout for a connection
ANSWER_S = 30.0  # timeout for the answer after the connection
NO_FOLDER, NO_MPI, NO_PYTHON, NO_HETU = 41, 42, 43, 44


def ssh_options(key):
    """Returns the options of ssh for every connection: never prompt, and give up soon. Everything else comes from the ssh
    configuration."""
    return ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_S}", *(["-i", key] if key else [])]


def question(daemon, search):
    """Returns the shell command that a host is asked with. It expects the same paths as on this host. `daemon` is "" if the
    host needs no Open MPI."""
    path = os.pathsep.join(filter(None, [os.path.dirname(package()), search]))
    folder, daemon, python, file = (
        shlex.quote(p) for p in (os.getcwd(), daemon, sys.executable, os.path.join(package(), "launch", "identity.py")))
    return (f"cd {folder} 2>/dev/null || exit {NO_FOLDER}; test -z {daemon} -o -x {daemon} || exit {NO_MPI}; "
            f"test -x {python} || exit {NO_PYTHON}; test -r {file} || exit {NO_HETU}; "
            f"PYTHONPATH={shlex.quote(path)} exec {python} -m hetu.launch.identity")


def ask(hosts, key, daemon, search, bare=()):
    """Asks all hosts at once. Returns {host: (exit status or None for no answer, output, errors)}. Hosts in `bare` need no
    Open MPI."""
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
    """Returns the reason why ssh failed, from its messages."""
    lines = [line.strip() for line in error.splitlines() if line.strip() and not line.startswith(("Warning:", "@"))]
    said = "; ".join(lines[-2:]) or "it said nothing"
    if "Permission denied" in said:
        return f"it refuses {f'the ssh key {key}' if key else 'every ssh key (-i gives one)'}: {said}"
    if "Host key verification failed" in said:
        return f"ssh does not know its host key; connect once by hand: {said}"
    return f"ssh does not reach it: {said}"


def trouble(answer, own, key, daemon):
    """Returns a description of what is wrong with a host, or ""."""
    code, out, error = answer
    reasons = {
        None: f"ssh connected, but it did not answer in {ANSWER_S:g} s",
        255: of_ssh(error, key),
        NO_FOLDER: f"it has no folder {os.getcwd()}, where the job would run; share it, or make it there too",
        NO_MPI: f"it has no {daemon}; install Open MPI there as it is here",
        NO_PYTHON: f"it has no {sys.executable}, the Python that runs heturun here",
        NO_HETU: f"it has no Hetu in {package()}; install the same version at the same path",
    }
    if code in reasons:
        return reasons[code]
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
        return f"it can't report its version of Hetu (status {code}): {' '.join((error or out).split()[-30:])}"
    return ""


def check(hosts, others, key, daemon, search, bare=()):
    """Asks `others`, the hosts that are not this machine. Hosts in `bare` have no worker, and need no Open MPI.

    Raises OSError with all problems in one line. Returns warnings about hosts whose Hetu was compiled differently, which is
    normal for other processors.
    """
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
                              "node with the sum of their workers")
    return [f"host {host} has another build of Hetu ({theirs['compiled']}, here {own['compiled']}): the last bits of "
            "results may depend on which host computes them"
            for host, theirs in said.items() if theirs["compiled"] != own["compiled"]]

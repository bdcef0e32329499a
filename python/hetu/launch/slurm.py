"""Hosts and workers of a Slurm allocation, from its environment variables. No Slurm command is run."""
import re

MOST = 65536  # most hosts in a list
PART = r"(?:[A-Za-z0-9._-]|\[[0-9,-]*\])+"


class SlurmError(ValueError):
    """A Slurm variable that can't be parsed. The message is one line."""


def numbers(text, where):
    """Returns the numbers of "1-3,07" as text, with their leading zeros."""
    found = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", part)
        if not match or int(match[2] or match[1]) < int(match[1]):
            raise SlurmError(f"{where}: '[{text}]' is not a list of numbers such as [1-3,7]")
        first, last = match[1], match[2] or match[1]
        if len(found) + int(last) - int(first) >= MOST:
            raise SlurmError(f"{where}: more than {MOST} hosts")
        width = len(first) if first.startswith("0") or len(first) == len(last) else 0
        found += [str(n).zfill(width) for n in range(int(first), int(last) + 1)]
    return found


def expand(text, where="SLURM_JOB_NODELIST"):
    """Returns the hosts of "w[0-1],gpu[01-03]x[1,4]". Raises SlurmError."""
    if not re.fullmatch(f"{PART}(,{PART})*", text):
        raise SlurmError(f"{where}: '{text}' is not a list of hosts such as w[0-3],gpu7")
    hosts = []
    for part in re.findall(PART, text):
        names = [""]
        for piece in re.findall(r"\[[^\[\]]*\]|[^\[\]]+", part):
            ends = numbers(piece[1:-1], where) if piece.startswith("[") else [piece]
            if len(names) * len(ends) + len(hosts) > MOST:
                raise SlurmError(f"{where}: more than {MOST} hosts")
            names = [name + end for name in names for end in ends]
        hosts += names
    if any(host.startswith("-") for host in hosts):  # ssh and mpirun would treat it as an option
        raise SlurmError(f"{where}: '{text}' has a host that begins with '-'")
    return hosts


def counts(text, where="SLURM_TASKS_PER_NODE"):
    """Returns the numbers of "2(x3),1". Raises SlurmError."""
    found = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,4})(?:\(x(\d{1,5})\))?", part)
        if not match or len(found) + int(match[2] or 1) > MOST:
            raise SlurmError(f"{where}: '{text}' is not a list of counts such as 2(x3),1")
        found += [int(match[1])] * int(match[2] or 1)
    return found


def allocation(environ):
    """Returns the allocation of this process as nodes of a cluster file, or None outside of an allocation. The first node
    is the chief. There is a worker for each task. Raises SlurmError."""
    text = environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST")
    if not text:
        return None
    hosts = expand(text)
    tasks = counts(environ.get("SLURM_TASKS_PER_NODE") or f"1(x{len(hosts)})")
    if len(tasks) != len(hosts):
        raise SlurmError(f"SLURM_TASKS_PER_NODE: '{environ['SLURM_TASKS_PER_NODE']}' is for {len(tasks)} hosts, "
                         f"SLURM_JOB_NODELIST names {len(hosts)}")
    twice = next((host for host in hosts if hosts.count(host) > 1), None)
    if twice is not None:
        raise SlurmError(f"SLURM_JOB_NODELIST: '{text}' names {twice} twice")
    return [{"host": host, "servers": 0, "workers": n, "chief": i == 0}
            for i, (host, n) in enumerate(zip(hosts, tasks, strict=True))]


def with_servers(nodes, servers):
    """Returns the nodes with `servers` servers, spread evenly; the first nodes get the remainder."""
    each, more = divmod(servers, len(nodes))
    return [dict(node, servers=each + (i < more)) for i, node in enumerate(nodes)]

"""Helpers for tests of jobs: the processes that are left, and conditions that must become true in time."""
import os
import re
import time


def processes_with(mark):
    """Returns the ids of live processes whose environment contains `mark`."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if mark.encode() in file.read():
                        found.append(int(name))
            except OSError:
                continue
    return found


def process_of(mark, word, number=None):
    """Returns the id of a process with `mark` that runs `word`, and that is worker `number` of its job. Returns None if
    there is none."""
    for pid in processes_with(mark):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")[:4]
            with open(f"/proc/{pid}/environ", "rb") as file:
                values = dict(entry.partition("=")[::2] for entry in file.read().decode(errors="replace").split("\0"))
        except OSError:
            continue
        own = int(values.get("HETU_FIRST_WORKER", 0)) + int(values.get("OMPI_COMM_WORLD_RANK", -1))
        if any(w.endswith(word.encode()) for w in words) and not any(b"guard.py" in w for w in words):
            if number is None or own == number:
                return pid
    return None


def without_block(error):
    """Returns a job's standard error without the text that heturun prints for any job: the Cluster block, and a line on
    removed files of killed jobs."""
    error = re.sub(r"^heturun: removed .*: left by a job that was killed.*\n", "", error, flags=re.M)
    rest, blocks = re.subn(r"^Cluster: \{\n(?:  .*\n)+\}\n", "", error, flags=re.M)
    if blocks != 1:
        raise AssertionError(f"{blocks} Cluster blocks in place of one in: {error}")
    return rest


def parent_of(pid):
    """Returns the id of a process's parent."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def runs_script(pid, name):
    """Returns true if a Python process was started with a script of this name, and false if the process has ended."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().split(b"\0")[:4]
    except OSError:
        return False
    return b"python" in words[0] and any(word.endswith(name.encode()) for word in words[1:])


class StopsBefore:
    """Python processes started with `environment` stop where they import `module`, until go() is called. `folder` is empty
    and used for nothing else."""

    SITE = ("import os, sys, time\n"
            "class Stop:\n"
            "    def find_spec(self, name, path, target=None):\n"
            "        if name == {module!r}:\n"
            "            open({there!r}, 'w').close()\n"
            "            while not os.path.exists({go!r}): time.sleep(0.01)\n"
            "sys.meta_path.insert(0, Stop())\n")

    def __init__(self, folder, module, environment):
        self._there, self._go = folder / "there", folder / "go"
        (folder / "sitecustomize.py").write_text(self.SITE.format(module=module, there=str(self._there), go=str(self._go)))
        paths = filter(None, [str(folder), environment.get("PYTHONPATH")])
        self.environment = {**environment, "PYTHONPATH": os.pathsep.join(paths)}

    def is_there(self):
        return self._there.exists()

    def go(self):
        self._go.touch()


def wait_until(condition, seconds=180.0):
    """Returns true if the condition became true in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return bool(condition())

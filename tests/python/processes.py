"""What tests of jobs ask of the machine: which processes are left, and whether something happens in time."""
import os
import time


def processes_with(mark):
    """Ids of living processes whose environment holds `mark`."""
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


def wait_until(condition, seconds=180.0):
    """Whether the condition came true in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return bool(condition())

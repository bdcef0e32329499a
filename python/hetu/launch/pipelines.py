"""The pipelines of a job that heturun starts separately (--on-failure shrink): their number, and the hosts of their
workers."""
import importlib.util
import os

from hetu import devices


def option_of(command, name):
    """Returns the value of an option in a command's arguments, or None. If it occurs several times, the last value counts.
    """
    value = None
    for i, word in enumerate(command):
        if word == name and i + 1 < len(command):
            value = command[i + 1]
        elif word.startswith(name + "="):
            value = word[len(name) + 1:]
    return value


def script_of(command):
    """Returns the Python script that a command runs, or None."""
    return next((word for word in command if word.endswith(".py")), None)


def lists_beside(command):
    """Returns the device lists of the device_list.py in the folder of the command's script."""
    script = script_of(command)
    path = os.path.join(os.path.dirname(os.path.realpath(script)), "device_list.py") if script else ""
    if not os.path.isfile(path):
        return {}
    spec = importlib.util.spec_from_file_location("device_list", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return devices.lists_of(module)


def count_of(command, nodes, environ):
    """Returns the number of pipelines in the command's device list. Raises ValueError unless the workers of each pipeline
    have consecutive numbers."""
    choice = option_of(command, "--devices") or environ.get("HETU_DEVICES", "")
    layout = devices.choose(choice, lists_beside(command), [(node["host"], node["workers"]) for node in nodes])
    plain = tuple(tuple(range(p * layout.stages, (p + 1) * layout.stages)) for p in range(layout.pipelines))
    if layout.replicas or layout.worker_of != plain:
        raise ValueError(f"--on-failure shrink: the device list {layout.name} does not number the workers of each pipeline "
                         f"one after the other; pipe_{layout.pipelines}_{layout.stages} does")
    return layout.pipelines


def check(pipelines, workers):
    """Raises ValueError unless this number of pipelines can lose one."""
    if pipelines < 2:
        raise ValueError("--on-failure shrink: the job has 1 pipeline, and can't continue without it; at least 2 are needed")
    if workers % pipelines:
        raise ValueError(f"--on-failure shrink: {workers} workers can't be divided into {pipelines} pipelines of one length")


def split(nodes, pipelines):
    """Returns the nodes of each pipeline with the workers that it has there, host by host."""
    hosts = [node for node in nodes for _ in range(node["workers"])]
    each = len(hosts) // pipelines
    parts = []
    for p in range(pipelines):
        part = []
        for node in hosts[p * each:(p + 1) * each]:
            if part and part[-1]["host"] == node["host"]:
                part[-1]["workers"] += 1
            else:
                part.append(dict(node, workers=1))
        parts.append(part)
    return parts

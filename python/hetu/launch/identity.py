"""The identity of a host's Hetu. `python3 -m hetu.launch.identity` prints it as JSON, for heturun on another host."""
import hashlib
import importlib.util
import json
import os
import socket
import sys


def package():
    """Returns the folder of the package hetu."""
    return os.path.dirname(os.path.dirname(os.path.realpath(__file__)))


def digest(paths):
    """Returns the first 12 digits of the SHA-256 of files, in the given order."""
    sums = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            sums.update(file.read())
    return sums.hexdigest()[:12]


def identity():
    """Returns {"host": its name, "sources": digest of the package's sources, "compiled": digest of the compiled module, or
    ""}."""
    folder = package()
    names = sorted(os.path.relpath(os.path.join(place, name), folder)
                   for place, _, files in os.walk(folder) for name in files if name.endswith(".py"))
    found = importlib.util.find_spec("hetu._hetu")
    compiled = digest([found.origin]) if found is not None and found.origin else ""
    return {"host": socket.gethostname(), "sources": digest(os.path.join(folder, name) for name in names),
            "compiled": compiled}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(identity()) + "\n")

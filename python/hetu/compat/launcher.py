"""SD-PIPE's older launcher: a file with `shared:` and `launch:` starts the workers and servers of one machine.

A script calls launch(target, args), and args.config names the file:

    shared:
      DMLC_PS_ROOT_PORT: 13100      # variables for all processes
    launch:
      worker: 4
      server: 1
      scheduler: 1

launch() runs the script again under heturun, whose workers call the target. `python3 -m hetu.launcher FILE -n N` runs N
stand-alone parameter servers (hetu.ps) with the variables of the file.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from hetu import _hetu, one_line_errors
from hetu.command_parser import CommandParser

COUNTS = ("worker", "server", "scheduler")
UNUSED = re.compile(r"(DMLC|PS)_")  # variables of the original's servers; heturun sets the addresses of its own


@dataclasses.dataclass(frozen=True)
class Settings:
    """The content of a file: variables for all processes, and numbers of processes."""

    shared: dict[str, str]
    worker: int
    server: int
    scheduler: int


def read(path: str | os.PathLike[str]) -> Settings:
    """Reads a file with two sections of `key: value` lines. Throws ValueError, which names the line."""
    found: dict[str, dict[str, str]] = {"shared": {}, "launch": {}}
    section = ""
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        text = re.sub(r"(^|\s)#.*", "", line).rstrip()
        if not text or text == "---":
            continue
        where = f"{path}:{number}"
        match = re.fullmatch(r"(\s*)([\w.-]+)\s*:\s*(.*)", text)
        if not match:
            raise ValueError(f"{where}: '{text.strip()[:60]}' is not a line of the form `key: value`")
        indent, key, value = match.groups()
        if not indent:
            if key not in found or value not in ("", "{}"):
                raise ValueError(f"{where}: expected `shared:` or `launch:` with indented lines below, got '{text[:60]}'")
            section = key
            continue
        if not section:
            raise ValueError(f"{where}: '{key}' is in no section; begin with `shared:` or `launch:`")
        if section == "launch" and (key not in COUNTS or not re.fullmatch(r"[0-9]{1,4}", value)):
            raise ValueError(f"{where}: launch takes {', '.join(COUNTS)} with a number from 0 to 9999, got "
                             f"'{text.strip()[:60]}'")
        quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
        found[section][key] = value[1:-1] if quoted else value
    counts = {key: int(found["launch"].get(key, 0)) for key in COUNTS}
    return Settings(found["shared"], **counts)


def launch(target: Callable[[Any], Any], args: Any) -> None:
    """Runs target(args) in every worker that the file args.config asks for, and returns when all have succeeded.

    args.num_local_worker is set to the number of workers. If a worker fails, this process exits with heturun's status. In
    a script that heturun already runs, it calls the target in this worker, and then ends the worker. Throws ValueError for
    a wrong file.
    """
    settings = read(args.config)
    os.environ.update(settings.shared)
    args.num_local_worker = settings.worker
    env = _hetu.env()
    if env["job"]:
        os.environ["DMLC_ROLE"] = "worker"
        args.num_local_worker = env["local_workers"]
        target(args)
        sys.exit(0)
    if settings.worker < 1:
        raise ValueError(f"{args.config}: `launch:` must have a line `worker: N` with N of at least 1")
    unused = sorted(name for name in settings.shared if UNUSED.match(name))
    if unused:
        say(f"{args.config}: heturun sets the addresses of its servers; not used: {', '.join(unused)}")
    if settings.scheduler:
        say(f"{args.config}: no scheduler is started, because heturun's servers need none")
    servers = ["-s", str(settings.server)] if settings.server else []
    status = run([heturun(), "-w", str(settings.worker), *servers, sys.executable, *sys.orig_argv[1:]])
    if status:
        sys.exit(status)


def heturun() -> str:
    """Returns the path of heturun: in the source tree it is next to the package, in an installation with the programs."""
    tree = Path(__file__).resolve().parents[2] / "heturun"
    return str(tree) if tree.is_file() else str(Path(sysconfig.get_path("scripts")) / "heturun")


def run(command: list[str]) -> int:
    """Runs a command and passes on SIGTERM and SIGUSR1. Ctrl-C reaches it from the terminal. Returns its exit status."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    process = subprocess.Popen(command, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    passed = {number: signal.signal(number, lambda got, _: process.send_signal(got))
              for number in (signal.SIGTERM, signal.SIGUSR1)}
    try:
        status = process.wait()
    finally:
        for number, handler in {signal.SIGINT: before, **passed}.items():
            signal.signal(number, handler)
    return status if status >= 0 else 128 - status


def say(line: str) -> None:
    """Prints a line of this module on standard error."""
    print(f"hetu.launcher: {line}", file=sys.stderr, flush=True)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = CommandParser(prog="python3 -m hetu.launcher", allow_abbrev=False,
                           description="Runs stand-alone parameter servers of this machine.")
    parser.add_argument("config", metavar="FILE", help="variables under `shared:`")
    parser.add_argument("-n", type=int, default=1, metavar="N", help="number of servers (default 1)")
    parser.add_argument("--sched", action="store_true", help="accepted: a line says that no scheduler is needed")
    parser.add_argument("--keys", metavar="FILE", help="connection file for hetu.ps.connect (default: FILE.keys)")
    parser.add_argument("--listen", default="tcp://127.0.0.1:*", metavar="ENDPOINT",
                        help="as for hetu ps serve (%(default)s)")
    given = parser.parse_args(arguments)
    if given.n < 1:
        parser.error(f"-n {given.n}: at least 1")
    return given


def main(arguments: list[str] | None = None) -> int:
    """Runs the servers until one ends, and returns its status. SIGINT and SIGTERM end all."""
    given = parse(arguments)
    with one_line_errors("hetu.launcher"):
        os.environ.update(read(given.config).shared)
        if given.sched:
            say("--sched: no scheduler is started, because Hetu's servers need none")
        keys = given.keys or f"{given.config}.keys"
        common = ["hetu", "ps", "serve", "--listen", given.listen, "--keys", keys, "--servers", str(given.n)]
        servers = [subprocess.Popen([*common, "--server", str(k)]) for k in range(given.n)]
        say(f"{given.n} servers; programs connect with hetu.ps.connect('{keys}')")

        def pass_on(number: int, _frame: FrameType | None) -> None:
            for server in servers:
                server.send_signal(number)

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, pass_on)
        statuses = [server.wait() for server in servers]
        return next((status if status > 0 else 128 - status for status in statuses if status), 0)
    return 0

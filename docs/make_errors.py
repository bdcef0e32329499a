#!/usr/bin/env python3
"""Writes docs/errors.md: exit statuses, error codes, Python's exceptions, and messages that the tools really print.

usage: docs/make_errors.py [--check]   with hetu, heturun and the built package in PATH; --check: exit 1 if the page is stale
                                       (a test calls this)

Codes and their meanings come from base/error.h, exceptions from python/src/module.cpp, and statuses of scripts from
hetu.process.errors. Each example is run, must end with the status of its code, and is shown with its output."""

from __future__ import annotations

import builtins
import os
import re
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from hetu import _hetu
from hetu.process import errors

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "errors.md"
LIMIT_S = 120
PORT = "48219"  # as the page shows it; a run takes a free one


class Code(NamedTuple):
    """An error code: the exit status of C++ programs, its meaning, and the class that Python raises."""

    name: str
    status: int
    meaning: str
    exception: type[Exception]


class Example(NamedTuple):
    """A command that ends with an error of a code, and what a reader does about it. `status` differs from the code's where
    a command says so."""

    code: str
    command: str
    remedy: str
    status: int | None = None


TRAIN = """import sys

import numpy as np

import hetu as ht

with ht.one_line_errors("train.py"):
    rows = np.ones((32, 4), np.float32)
    data = ht.data.Batches([{"x": rows, "y": np.zeros(32, np.int32)}] * 4, 32)
    model = ht.nn.Sequential(ht.nn.Linear(4, 8), ht.nn.Linear(8, 2), cuts=True)
    loss = ht.models.mean_cross_entropy(model(data.x), data.y, "loss")
    keywords = dict(word.split("=") for word in sys.argv[1:] if word != "leave")
    job = ht.Executor({"train": [loss, ht.optim.SGD(0.1).minimize(loss)]}, **keywords)
    for step in job.run("train", steps=4):
        if "leave" in sys.argv and step.index == 1 and not job.is_chief:
            sys.exit(0)
"""
FILES = {
    "train.py": TRAIN,
    "plan.csv": "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n",
    "short.csv": "0F0,0F1,0B0,0B1\n1F0,1B0\n",
    "costs.json": '{"unit": "ms", "stages": [{"forwards": 10}]}\n',
    "cluster.yml": "nodes:\n  - host: localhost\n    worker: 2\n",
}
EXAMPLES = [
    Example("Plan", "hetu verify plan.csv",
            "The lines show which worker waits for which. Worker 1 wants a second forward before it sends the "
            "gradient that worker 0 waits for. Let earlier stages run further ahead "
            "([tutorial-schedules.md](tutorial-schedules.md#prove-it))."),
    Example("Plan", "hetu verify short.csv", "Every micro-batch needs a forward and a backward on each stage. Add the row's "
            "missing cells, or remove the micro-batch from the other rows."),
    Example("Plan", "hetu verify 1f1b --stages 4 --micro-batches 8 --memory-limit 3",
            "Raise the limit, or let `hetu choose --memory-limit` look for a method, recompute included."),
    Example("InvalidArgument", "hetu simulate 1f1b --stages 4 --micro-batch 8",
            "Correct the option. `hetu COMMAND --help` and [reference.md](reference.md) list all options."),
    Example("InvalidArgument", "hetu timeline run.json -o run.jpg", "Choose a suffix from the list."),
    Example("InvalidArgument", "python3 train.py micro_batches=3",
            "Split the batch evenly: change the number of micro-batches or the batch size."),
    Example("InvalidArgument", "python3 train.py micro_batch=4",
            "Correct the keyword. `help(hetu.Executor)` lists all keywords."),
    Example("Config", "hetu simulate 1f1b --stages 4 --micro-batches 8 --costs costs.json",
            "Correct the key in the file. [reference.md](reference.md#files) describes the files."),
    Example("Config", "heturun -c cluster.yml python3 train.py",
            "Correct the named line of the cluster file ([hosts.md](hosts.md))."),
    Example("Config", "HETU_TIMEOUT=soon heturun -w 2 python3 train.py",
            "Correct or unset the variable. [reference.md](reference.md#environment-variables) lists all variables."),
    Example("Unsupported", "python3 train.py dtype=fp16", "Take one of the alternatives that the message names."),
    Example("Io", "python3 python/train_bert.py --data missing --steps 10",
            "Correct the path, or make the sample with the command that the message names."),
    Example("Io", "hetu verify missing.csv",
            "Correct the path. Commands of `hetu` count input that can't be read as wrong input, so the status is 2.", 2),
    Example("Comm", "heturun -w 2 python3 train.py leave",
            "Look for the cause at the named worker: worker 1 ended its loop early, and worker 0 waited for it. All workers "
            "must leave a loop after the same step."),
    Example("Timeout", f"RANK=0 WORLD_SIZE=2 MASTER_PORT={PORT} HETU_TIMEOUT=2 python3 train.py",
            "Start the missing process, or look at the output of the one that failed. `HETU_TIMEOUT` is the deadline in "
            "seconds."),
]
REMEDIES = {
    "InvalidArgument": "correct the option or argument that the message names",
    "Config": "correct the file's line, the key or the variable that the message names",
    "Plan": "change the plan, its sizes or its limit; the lines name the workers and instructions",
    "Unsupported": "use the alternative that the message names, or build with the missing part (`hetu doctor`)",
    "Io": "check the path, the rights, the free space, and whether the file is damaged",
    "Comm": "look at the first worker that is named; the others failed because of it",
    "Timeout": "find out why the named worker or server is late; raise `HETU_TIMEOUT` if it only needs longer",
    "Internal": "report it, with the message and the command",
}
HEAD = """# Errors and exit statuses

This page says what an error message means and what you can do about it, for the commands `hetu` and `heturun`, for the
training scripts, and for your own programs. `docs/make_errors.py` writes it: it reads the codes from the sources and runs
the examples. A test checks that the page is up to date.

An error is one line on standard error. It names the program, what was asked, what was found, and what to do. If a call in
a Python script is wrong, the script's line comes first:

"""
BETWEEN = """
If a plan fails its proof, the error has one more line for each worker concerned.

## Error codes

Each error has a code. The code decides the exit status of a command and the exception in Python:

"""
NOTES = """
- The command `hetu` exits with the status in the table. There is one exception: most of its commands treat input that
  can't be read as wrong input, with status 2.
- In Python, catch the exception, for example `except hetu.CommError`. `hetu.ConfigError` is a `ValueError`, and
  `hetu.CommError` is a `ConnectionError`, so it is also an `OSError`.
- In a script, `with hetu.one_line_errors(NAME):` turns an error of Hetu into one line, and the script exits with the status
  of the table. The training scripts use it. Without it, Python shows a traceback and exits with status 1.
- A refused plan has status 1 in the command `hetu`, and status 2 in scripts, because it is a `ValueError` there.
- In C++, `hetu::Error` has `code()`, and `hetu::exit_status(code)` returns the status.

## Other exit statuses

| status | meaning |
|---|---|
| 0 | success; also a training that saved a checkpoint after SIGUSR1 or the first Ctrl-C |
| 1 | a refused plan, or a script that ended with a Python traceback |
| 127 | `heturun` doesn't find the program, or can't execute it |
| 128 + N | ended by signal N: 130 for Ctrl-C without a checkpoint folder, 137 for SIGKILL, 141 for a closed pipe |

## Errors in a job

If a worker fails, the job ends within 10 s. `heturun` names the first worker that failed, and exits with its status. The
error line of that worker shows the cause. Other workers that fail with Comm or Timeout report only that they waited for
it. [hosts.md](hosts.md) lists what can fail, and how fast it is reported.

## Examples

The Python examples run this program. It passes its arguments to `hetu.Executor`:

"""


def codes() -> list[Code]:
    """Returns the codes in the order of base/error.h, with the exceptions of the Python module."""
    meanings = re.findall(r"^  (\w+),?\s+///< (.*)$", (ROOT / "base" / "error.h").read_text(), re.M)
    statuses = dict(re.findall(r'\{"(\w+)", (\d+)\}', (ROOT / "base" / "error.cpp").read_text()))
    source = (ROOT / "python" / "src" / "module.cpp").read_text()
    raised: dict[str, str] = {}
    for cases, value in re.findall(r"((?:case hetu::Code::\w+:\s*)+)return (\w+);", source):
        raised |= {name: value for name in re.findall(r"Code::(\w+)", cases)}
    own = {"g_config_error": _hetu.ConfigError, "g_comm_error": _hetu.CommError}

    def exception(name: str) -> type[Exception]:
        value = raised.get(name, "PyExc_RuntimeError")
        return own.get(value) or getattr(builtins, value.removeprefix("PyExc_"))

    return [Code(name, int(statuses[name]), re.sub(r" \(exit status.*\)", "", text), exception(name))
            for name, text in meanings]


def name_of(kind: type[Exception]) -> str:
    return kind.__name__ if kind.__module__ == "builtins" else f"hetu.{kind.__name__}"


def script_status(kind: type[Exception]) -> int:
    return next(status for base, status in errors.STATUS if issubclass(kind, base))


def output_of(example: Example, status: int, folder: Path) -> str:
    """Runs an example. Returns its error lines without those that say where it computes, and with N for process ids,
    which change."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = example.command.replace("python/train_bert.py", str(ROOT / "python" / "train_bert.py")).replace(PORT, port)
    done = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, timeout=LIMIT_S,
                          env={**os.environ, "HETU_DEVICE": "cpu", "HETU_TIMEOUT": "60", "HETU_RUNS": "none"})
    if done.returncode != status:
        raise SystemExit(f"{example.command}: expected status {status}, got {done.returncode}\n{done.stderr}")
    lines = re.sub(r"^Cluster: \{\n.*?^\}\n", "", done.stderr, flags=re.M | re.S).replace(port, PORT).splitlines()
    lines = [line for line in lines if not re.match(r"(\[\d\] )?(hetu: computing|devices:) ", line)]
    return re.sub(r"\([^()]*, pid \d+\)", "(HOST, pid N)", "\n".join(lines))


def examples(known: list[Code]) -> str:
    text = []
    with tempfile.TemporaryDirectory(prefix="hetu-errors-") as name:
        folder = Path(name)
        for file, content in FILES.items():
            (folder / file).write_text(content)
        for code in known:
            here = [example for example in EXAMPLES if example.code == code.name]
            text.append(f"### {code.name}\n")
            if not here:
                text.append("An error with this code is a bug in Hetu. "
                            "`--compare-single` also uses it, if a result differs from that of one process.\n")
            for example in here:
                is_script = "train" in example.command and "-c cluster.yml" not in example.command
                usual = script_status(code.exception) if is_script else code.status
                status = usual if example.status is None else example.status
                text.append(f"```console\n$ {example.command}\n{output_of(example, status, folder)}\n```\n\n"
                            f"Status {status}. {example.remedy}\n")
    return "\n".join(text)


def page() -> str:
    known = codes()
    rows = ["| code | status | Python | status of scripts | meaning | what to do |", "|---|---|---|---|---|---|"]
    rows += [f"| {code.name} | {code.status} | `{name_of(code.exception)}` | {script_status(code.exception)} | "
             f"{code.meaning} | {REMEDIES[code.name]} |" for code in known]
    shown = examples(known)
    first = re.search(r"^train\.py:.*$", shown, re.M)
    assert first is not None
    return (f"{HEAD}```text\n{first[0]}\n```\n{BETWEEN}" + "\n".join(rows) + f"\n{NOTES}```python\n{TRAIN}```\n\n"
            f"In its folder are `plan.csv` and `short.csv` (plans of two workers), `costs.json` and `cluster.yml`, each "
            f"with a mistake.\n\n{shown}")


def main() -> int:
    made = page()
    if sys.argv[1:] == ["--check"]:
        if not PAGE.exists() or PAGE.read_text() != made:
            print("docs/errors.md is stale; make it again: python3 docs/make_errors.py")
            return 1
        return 0
    PAGE.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs a script for Varuna as one worker: with the arguments and the environment that Varuna's launcher gives each process.

    python3 -m hetu.compat.varuna.node [flags] script.py arguments...

run_varuna.py starts it under heturun. It isn't meant to be typed."""

from __future__ import annotations

import argparse
import os
import re
import runpy
import sys
from pathlib import Path

from hetu import _hetu
from hetu.compat.varuna import launched
from hetu.compat.varuna.placement import default_map

MASTER_PORT = "29500"  # Varuna's default


def flags() -> argparse.ArgumentParser:
    """Returns the parser of the flags."""
    parser = argparse.ArgumentParser(prog="hetu.compat.varuna.node", allow_abbrev=False)
    parser.add_argument("--stages", type=int, required=True, help="of a pipeline")
    parser.add_argument("--replicas", type=int, required=True, help="number of pipelines")
    parser.add_argument("--chunk_size", type=int, required=True, help="samples of a micro-batch")
    parser.add_argument("--batch_size", type=int, required=True, help="samples of a step, of all replicas")
    parser.add_argument("--resume_step", type=int, help="step of the checkpoint from which to continue")
    parser.add_argument("--env_file", help="variables for the script, a line NAME=VALUE each")
    parser.add_argument("--tree", action="store_true", help="add gradients in the same order under every layout")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="script and its arguments")
    return parser


def read_variables(path: str | os.PathLike[str]) -> dict[str, str]:
    """Returns the variables in a file: a line NAME=VALUE each, optionally after `export`; `#` begins a comment line. Throws
    ValueError, which names the line."""
    found = {}
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        match = re.fullmatch(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=(.*)", text)
        if not match:
            raise ValueError(f"{path}, line {number}: expected NAME=VALUE, got '{text[:60]}'")
        value = match[2].strip()
        quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
        found[match[1]] = value[1:-1] if quoted else value
    return found


def first_host() -> str:
    """Returns the address of the first worker's host, for MASTER_ADDR."""
    host = os.environ.get("HETU_HOSTS", "").partition(",")[0].rpartition(":")[0]
    return "127.0.0.1" if host in ("", "localhost") else host


def arguments_of(given: argparse.Namespace, rank: int, local_rank: int) -> list[str]:
    """Returns the arguments of a rank's script: Varuna's own, and then the user's."""
    resume = [] if given.resume_step is None else [f"--resume_step={given.resume_step}"]
    return [f"--rank={rank}", f"--local_rank={local_rank}", f"--chunk_size={given.chunk_size}",
            f"--stage_to_rank_map={default_map(given.stages, given.replicas)}",
            f"--batch-size={given.batch_size // given.replicas}", *resume, *given.command[1:]]


def main(argv: list[str] | None = None) -> None:
    """Runs the script in this process."""
    given = flags().parse_args(argv)
    rank = int(_hetu.env()["worker"])  # read before the script's variables are set
    local_rank = int(os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", "0"))
    if given.env_file:
        os.environ.update(read_variables(given.env_file))
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(local_rank), WORLD_SIZE=str(given.stages * given.replicas))
    os.environ.setdefault("MASTER_ADDR", first_host())
    os.environ.setdefault("MASTER_PORT", MASTER_PORT)
    if given.tree:
        launched.sums = "tree"
    script = given.command[0]
    sys.argv = [script, *arguments_of(given, rank, local_rank)]
    sys.path[0] = str(Path(script).resolve().parent)
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()

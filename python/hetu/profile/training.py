"""`hetu profile`: measures the blocks of a model by training it for a few steps, for several micro-batch sizes.

    hetu profile [-w WORKERS] [--sizes 1,2,4,8] [--steps 6] -o PROFILE.json SCRIPT.py [the script's flags]

SCRIPT.py is a training script with the flags of train_bert.py (--trace, --batch-size, --micro-batches, --steps). It runs
once for each size, on WORKERS workers of this machine (heturun), as one pipeline by 1F1B. Its trace has the times and bytes
of all blocks, whatever the number of workers. With two or more workers it also has the links' latency. The file holds a cost
file for each size. A later run adds its sizes to the file, and replaces those that it measures again.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hetu import _hetu, files, one_line_errors, profile_file
from hetu.command_parser import CommandParser
from hetu.job.flags import check_suffix
from hetu.profile_file import SIZES, links_of, merged

MICRO_BATCHES = 4  # per step, so that the sums of gradients and the update are a small part
ERROR_LINES = 5


def flags_of(size: int, workers: int, steps: int, trace: Path) -> list[str]:
    """Returns the flags of a measured run. They stand after the user's, so that they hold."""
    return ["--devices", f"pipe_1_{workers}", "--pipeline", "1f1b", "--micro-batches", str(MICRO_BATCHES),
            "--batch-size", str(size * MICRO_BATCHES), "--steps", str(steps), "--points-every", "0", "--trace", str(trace)]


def heturun() -> str:
    """Returns the launcher: that of the source tree, or else the one on PATH."""
    beside = Path(__file__).resolve().parents[2] / "heturun"
    found = str(beside) if beside.is_file() else shutil.which("heturun")
    if found is None:
        raise ValueError("heturun is not on PATH; activate the environment that has it, or profile with one worker")
    return found


def command_of(given: argparse.Namespace, size: int, trace: Path) -> list[str]:
    """Returns the command line of a measured run."""
    script = [sys.executable, *given.script, *flags_of(size, given.workers, given.steps, trace)]
    if given.workers == 1:
        return script
    return [sys.executable, heturun(), "-w", str(given.workers), *script]


def costs_of(given: argparse.Namespace, size: int, folder: Path) -> dict[str, Any]:
    """Runs the script with micro-batches of `size` samples and returns its costs. Throws ValueError with the script's last
    lines if it fails."""
    trace = folder / f"trace-{size}.json"
    command = command_of(given, size, trace)
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        last = " | ".join(done.stderr.strip().splitlines()[-ERROR_LINES:])
        raise ValueError(f"the run with micro-batches of {size} ended with status {done.returncode}: {last}")
    if not trace.is_file():
        raise ValueError(f"{given.script[0]} wrote no trace; it must take the flags of train_bert.py, --trace among them")
    costs: dict[str, Any] = files.read_json(trace)["metadata"]["costs"]
    if not costs.get("blocks"):
        raise ValueError(f"the trace of {given.script[0]} has no times of blocks; its model must have cut-points (hetu.cut)")
    return costs


def profile_of(given: argparse.Namespace, progress: Any) -> dict[str, Any]:
    """Measures all sizes. A size that fails ends the sweep if a smaller one was measured, since memory may not suffice."""
    measured: dict[int, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="hetu-profile-") as folder:
        for number, size in enumerate(given.sizes):
            progress(number, len(given.sizes))
            try:
                measured[size] = costs_of(given, size, Path(folder))
            except ValueError as error:
                if not measured:
                    raise
                print(f"hetu profile: {error}; the profile ends at micro-batches of {max(measured)}", file=sys.stderr)
                break
    link = links_of(measured)
    for costs in measured.values():
        costs["link"] = {**link, "pairs": []}
        del costs["workers"]
    return profile_file.described(measured, " ".join(given.script), given.workers)


def report(profile: dict[str, Any]) -> str:
    """Returns a table of the sizes: times of a forward and backward of the whole model, and bytes."""
    lines = [f"{'samples':>8} {'blocks':>7} {'forward ms':>11} {'backward ms':>12} {'kept MiB':>9} {'weights MiB':>12}"]
    for size, costs in profile[SIZES].items():
        def total(*names: str, blocks: Any = costs["blocks"]) -> float:
            return float(sum(block[name] for block in blocks for name in names))
        lines.append(f"{size:>8} {len(costs['blocks']):>7} {total('forward'):>11.2f} "
                     f"{total('input_grad', 'weight_grad'):>12.2f} {total('activation_bytes') / (1 << 20):>9.1f} "
                     f"{total('weight_bytes') / (1 << 20):>12.1f}")
    return "\n".join(lines)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = CommandParser(
        prog="hetu profile", description="Measures the blocks of a model by training it for a few steps, and writes the "
        "profile that hetu plan --costs reads.")
    add: Any = parser.add_argument
    add("-o", "--output", type=Path, required=True, metavar="FILE.json", help="profile to write, or to add sizes to")
    add("-w", "--workers", type=int, default=1, metavar="N",
        help="workers of this machine; with two or more, links are measured, too (%(default)s)")
    add("--sizes", default="1,2,4,8", metavar="LIST", help="samples of a micro-batch (%(default)s)")
    add("--steps", type=int, default=6, metavar="N", help="steps for each size; the first doesn't count (%(default)s)")
    add("script", nargs=argparse.REMAINDER, metavar="SCRIPT.py …", help="training script with its flags")
    given = parser.parse_args(arguments)
    if given.script[:1] in (["--"], ["python3"], ["python"]):
        del given.script[0]
    try:
        given.sizes = sorted({int(size) for size in given.sizes.split(",")})
    except ValueError:
        parser.error(f"--sizes must be whole numbers such as 1,2,4, got '{given.sizes}'")
    if given.sizes[0] < 1:
        parser.error(f"--sizes must be >= 1, got {given.sizes[0]}")
    if given.workers < 1:
        parser.error(f"--workers must be >= 1, got {given.workers}")
    if given.steps < 2:
        parser.error(f"--steps must be >= 2, because the first step is a warm-up, got {given.steps}")
    if not given.script:
        parser.error("needs a training script with its flags, such as python/train_bert.py --data DIR")
    if not Path(given.script[0]).is_file():
        parser.error(f"no script {given.script[0]}")
    try:
        check_suffix("-o", given.output, ".json")
    except ValueError as error:
        parser.error(str(error))
    return given


def main(arguments: list[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    given = parse(arguments)
    with one_line_errors("hetu profile"):
        old = files.read_json(given.output) if given.output.exists() else None
        progress = _hetu.ProgressLine("hetu profile", "sizes")
        with progress:
            profile = profile_of(given, progress)
        if old is not None:
            profile = merged(old, profile, str(given.output))
        files.write_text(given.output, json.dumps(profile) + "\n")
        print(report(profile))
        print(f"{given.output}: {len(profile[SIZES])} sizes")
    return 0


if __name__ == "__main__":
    sys.exit(main())

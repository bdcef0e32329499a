"""PipeDream's optimizer by its own files: reads a profile, graph.txt, and writes the cut as PipeDream does.

    python3 -m hetu.compat.pipedream_files -f profiles/vgg16/graph.txt -n 4 2 -b 1.2e10 1.25e9 -o vgg16

The arguments have the names of PipeDream's optimizer: `-n` workers and `-b` bytes per second of each level, the innermost
first. `hetu plan --planner pipedream` chooses the stages and their copies. The folder then has:

- `gpus=N.txt`, the profile with ` -- stage_id=S` at each node;
- `conf.json`, which PipeDream's runtime takes as `--config_path`. `module_to_stage_map` has an entry per stage, and one for
  the loss, in the last stage. `stage_to_rank_map` has the ranks of each stage.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import hetu as ht
from hetu.files import parse_json, read_bytes, replaced

BANDWIDTH = 1e9  # bytes per second of a level without -b, as in PipeDream


def levels_of(counts: list[int], bandwidths: list[float]) -> str:
    """Returns --levels of hetu plan. Throws ValueError unless there is a bandwidth per level, or none."""
    if bandwidths and len(bandwidths) != len(counts):
        raise ValueError(f"-n has {len(counts)} levels, but -b has {len(bandwidths)}; give a bandwidth for each level")
    return ",".join(f"{count}:{bandwidth:g}" for count, bandwidth in
                    zip(counts, bandwidths or [BANDWIDTH] * len(counts), strict=True))


def stages_of(profile: str, levels: str) -> list[dict[str, Any]]:
    """Returns the planner's stages: their copies, and their layers as "node3 description"."""
    words = ["hetu", "plan", "--planner", "pipedream", "--costs", profile, "--levels", levels, "--format", "json"]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise ValueError(done.stderr.strip().removeprefix("hetu plan: ") or f"hetu plan ended with {done.returncode}")
    return list(parse_json(done.stdout, "hetu plan")["stages"])


def with_stages(profile: str, stages: list[dict[str, Any]]) -> str:
    """Returns the text of a profile with the stage of each node. The planner leaves out inputs, which belong to the first
    stage, and outputs `__getitem__…` that no layer reads, which belong to their producer's. Throws ValueError for any other
    node without a stage."""
    stage_of = {layer.split()[0]: stage for stage, entry in enumerate(stages) for layer in entry["layers"]}
    producer = {line.split(" -- ")[1].strip(): line.split(" -- ")[0].strip()
                for line in profile.splitlines() if line.startswith("\tnode")}
    lines = []
    for line in profile.splitlines():
        if line.startswith("node"):
            fields = [field for field in line.split(" -- ") if not field.startswith("stage_id=")]
            stage = stage_of.get(fields[0])
            if stage is None and fields[1].startswith("__getitem__"):
                stage = stage_of.get(producer.get(fields[0], ""))
            elif stage is None and fields[1].startswith("Input"):
                stage = 0
            if stage is None:
                raise ValueError(f"{fields[0]}: hetu plan has put this node into no stage")
            line = " -- ".join([*fields, f"stage_id={stage}"])
        lines.append(line)
    return "\n".join(lines) + "\n"


def conf_of(stages: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns PipeDream's configuration: ranks are numbered from stage to stage."""
    ranks: dict[str, list[int]] = {}
    first = 0
    for stage, entry in enumerate(stages):
        ranks[str(stage)] = list(range(first, first + entry["copies"]))
        first += entry["copies"]
    return {"module_to_stage_map": [*range(len(stages)), len(stages) - 1], "stage_to_rank_map": ranks}


def write(profile: str, levels: str, folder: Path) -> list[Path]:
    """Writes gpus=N.txt and conf.json for the stages of hetu plan, and returns their paths. Throws ValueError, OSError."""
    stages = stages_of(profile, levels)
    text = with_stages(read_bytes(profile).decode(), stages)
    folder.mkdir(parents=True, exist_ok=True)
    workers = sum(stage["copies"] for stage in stages)
    contents = {f"gpus={workers}.txt": text, "conf.json": json.dumps(conf_of(stages), indent=2) + "\n"}
    for name, content in contents.items():
        with replaced(folder / name) as path:
            Path(path).write_text(content)
    return [folder / name for name in contents]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     prog="python3 -m hetu.compat.pipedream_files")
    parser.add_argument("-f", metavar="FILE", required=True, help="graph.txt of PipeDream's profiler")
    parser.add_argument("-n", metavar="N", type=int, nargs="+", required=True, help="workers of each level")
    parser.add_argument("-b", metavar="B", type=float, nargs="+", default=[],
                        help=f"bytes per second of each level (default {BANDWIDTH:g})")
    parser.add_argument("-o", metavar="DIR", type=Path, required=True, help="folder for the two files")
    with ht.one_line_errors("hetu.compat.pipedream_files"):
        args = parser.parse_args(arguments)
        for path in write(args.f, levels_of(args.n, args.b), args.o):
            print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Passes Hetu's plans to torch.distributed.pipelining. Its reader, its checks and its dry run must accept every plan that
uses only its kinds of instructions. In the reverse direction, Hetu must refuse plans that can't run, although PyTorch's
reader accepts them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
BAD = HERE.parents[1] / "pipeline" / "torch" / "bad"
SIZES = [(2, 4), (3, 6), (4, 8), (4, 16), (8, 16)]
THEIR_KINDS = re.compile(r"\d+(F|B|I|W)\d+|\(\d+F\d+;\d+[BIW]\d+\)OVERLAP_F_B")


def hetu(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["hetu", *words], capture_output=True, text=True, check=False)


def methods() -> list[str]:
    """Returns the names that `hetu schedule` knows, from its error for an unknown name."""
    answer = hetu("schedule", "no-such-method", "--stages", "1", "--micro-batches", "1").stderr
    return re.split(r",\s*", re.sub(r" \([^)]*\)", "", answer.split("in brackets:")[1]).strip())


def runtime(workers: int, stages: int, micros: int) -> object:
    """Returns PyTorch's runtime for a plan from a file. The runtime only uses the sizes of its stages."""
    from types import SimpleNamespace

    import torch
    from torch.distributed.pipelining import schedules

    stage = SimpleNamespace(
        stage_index=0,
        num_stages=stages,
        group_size=workers,
        group_rank=0,
        group=None,
        is_first=True,
        is_last=stages == 1,
        has_backward=True,
        submod=torch.nn.Identity(),
    )
    return schedules._PipelineScheduleRuntime([stage], micros, torch.nn.functional.mse_loss)


def load(path: Path, workers: int, stages: int, micros: int, form: str = "compute_only") -> object:
    loaded = runtime(workers, stages, micros)
    loaded._load_csv(str(path), format=form)
    return loaded


def dry_run(loaded: object) -> None:
    """Runs PyTorch's simulator. It knows neither sharding nor sums nor pairs. Sharding and sums are left out, and a pair is
    replaced by its two parts."""
    from torch.distributed.pipelining import schedules

    rows = {}
    for rank, row in loaded.pipeline_order_with_comms.items():
        single = [part for action in row for part in (action.sub_actions or (action,))]
        rows[rank] = [a for a in single if not re.search("SHARD|REDUCE_GRAD", a.computation_type.value)]
    schedules._simulate_comms_compute(rows, lambda s: loaded.stage_index_to_group_rank[s], loaded._num_stages)


def try_method(name: str, workers: int, micros: int, folder: Path) -> bool:
    """Returns True if PyTorch got the plan, and False if it can't express the plan. Raises PyTorch's errors."""
    sizes = ["--stages", str(workers), "--micro-batches", str(micros)]
    plan = hetu("schedule", name, *sizes, "--format", "json")
    if plan.returncode != 0:
        return False  # no legal size
    facts = json.loads(plan.stdout)
    path = folder / f"{name}_{workers}_{micros}.csv"
    written = hetu("schedule", name, *sizes, "--format", "csv", "-o", str(path))
    if written.returncode != 0:
        raise RuntimeError(written.stderr)
    cells = [cell for line in path.read_text().splitlines() for cell in line.split(",")]
    if any(p["replica"] > 0 for p in facts["placements"]) or not all(THEIR_KINDS.fullmatch(c) for c in cells):
        return False
    dry_run(load(path, workers, len(facts["placements"]), micros))
    return True


def main() -> int:
    try:
        import torch
    except ImportError:
        print("torch_plans: torch is not installed here; install it to compare", file=sys.stderr)
        return 3
    print(f"against torch {torch.__version__}")
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for name in methods():
            given = 0
            for workers, micros in SIZES:
                try:
                    given += try_method(name, workers, micros, Path(folder))
                except Exception as error:  # its checks raise errors of any type
                    failed = True
                    print(f"{name} {workers} x {micros}: torch refuses: {str(error).splitlines()[0]}")
            print(f"{name:18} {given} plan(s) loaded and run dry" if given else f"{name:18} has kinds that torch has not")
    from torch.distributed.pipelining import schedules

    cyclic = runtime(2, 2, 2)
    schedules.PipelineScheduleMulti._load_csv(cyclic, str(BAD / "cyclic.csv"))
    load(BAD / "use_before_receive_lowered.csv", 2, 2, 1, "compute_comms")
    for path in sorted(BAD.glob("*.csv")):
        refused = hetu("verify", str(path))
        failed |= refused.returncode != 1
        print(f"{path.name}: torch's reader takes it; hetu: {refused.stderr.splitlines()[0]}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

"""Times hetu.torch on one GPU that four workers share, compared with plain PyTorch and torch.distributed.pipelining.

    python3 tests/cuda/torch_table.py                          # on a GPU: about three minutes
    python3 tests/cuda/torch_table.py --size tiny --device cpu # to check that everything runs

Plain PyTorch runs in one process. Two models of the size of GPT-2 small are trained by AdamW with 8 micro-batches: one
like GPT-2 in float32, and one like Llama (RMSNorm, rotary positions, SwiGLU) with torch.autocast in bfloat16. Each
step's loss is compared with that of plain PyTorch on the same device, and step times are medians. torch's pipelining has
all of its stages in one process, because its messages can't go between processes that share a GPU. Prints a table, and
with --json FILE all figures. Exit status: 0 if all losses are equal, 1 if some are not or a side failed, 3 if PyTorch
isn't installed."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve()
MICROS = 8
SCHEDULES = ("1f1b", "zb-v", "chimera")
SUMMED = ("chimera",)  # adds the gradients of two copies, in another order than one process
STAGES = 4  # of torch's pipelining


class Size(NamedTuple):
    """Sizes of both models."""

    blocks: int
    width: int
    heads: int
    words: int
    rows: int  # of a micro-batch
    length: int


SIZES = {"full": Size(12, 768, 12, 50257, 4, 512), "tiny": Size(6, 32, 2, 61, 2, 8)}
# Losses may differ by this relative amount after the first step. Copies are summed in another order, and AdamW amplifies the
# effect.
LIMITS = {"gpt": 1e-4, "llama": 2e-2}


# Models.


def attention_of(size: Size) -> Any:
    """Returns the class of a model's attention."""
    import torch
    from torch import nn
    from torch.nn import functional

    class Attention(nn.Module):
        """Causal self-attention, with rotary positions if `rotary`."""

        def __init__(self, rotary: bool) -> None:
            super().__init__()
            self.rotary = rotary
            self.into = nn.Linear(size.width, 3 * size.width, bias=not rotary)
            self.out = nn.Linear(size.width, size.width, bias=not rotary)

        def forward(self, x: Any) -> Any:
            """Returns a tensor of the same shape."""
            rows, length, width = x.shape
            q, k, v = (one.view(rows, length, size.heads, -1).transpose(1, 2) for one in self.into(x).chunk(3, -1))
            if self.rotary:
                q, k = turned(q), turned(k)
            out = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(out.transpose(1, 2).reshape(rows, length, width))

    def turned(x: Any) -> Any:
        """Rotates pairs of columns by angles that grow with the position (Su et al. 2021)."""
        half = x.shape[-1] // 2
        rates = 10000.0 ** -(torch.arange(half, device=x.device, dtype=torch.float32) / half)
        angles = torch.arange(x.shape[-2], device=x.device, dtype=torch.float32)[:, None] * rates
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)

    return Attention


def pieces_of(name: str, size: Size) -> list[Any]:
    """Returns the modules of a model. Each takes the output of the previous one."""
    import torch
    from torch import nn
    from torch.nn import functional

    Attention = attention_of(size)

    class GatedLayer(nn.Module):
        """A SwiGLU layer."""

        def __init__(self) -> None:
            super().__init__()
            inner = 8 * size.width // 3
            self.gate, self.up = (nn.Linear(size.width, inner, bias=False) for _ in range(2))
            self.down = nn.Linear(inner, size.width, bias=False)

        def forward(self, x: Any) -> Any:
            """Returns a tensor of the same shape."""
            return self.down(functional.silu(self.gate(x)) * self.up(x))

    class Block(nn.Module):
        """A block of a decoder."""

        def __init__(self) -> None:
            super().__init__()
            llama = name == "llama"
            norm = nn.RMSNorm if llama else nn.LayerNorm
            self.norms = nn.ModuleList(norm(size.width) for _ in range(2))
            self.attention = Attention(rotary=llama)
            self.layer = GatedLayer() if llama else nn.Sequential(nn.Linear(size.width, 4 * size.width), nn.GELU(),
                                                                  nn.Linear(4 * size.width, size.width))

        def forward(self, x: Any) -> Any:
            """Returns a tensor of the same shape."""
            x = x + self.attention(self.norms[0](x))
            return x + self.layer(self.norms[1](x))

    class Embedding(nn.Module):
        """Embeddings of words, and of positions for GPT-2."""

        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(size.words, size.width)
            self.places = nn.Embedding(size.length, size.width) if name == "gpt" else None

        def forward(self, ids: Any) -> Any:
            """Returns hidden states."""
            hidden = self.words(ids)
            return hidden if self.places is None else hidden + self.places(torch.arange(ids.shape[-1], device=ids.device))

    torch.manual_seed(0)
    norm = nn.RMSNorm if name == "llama" else nn.LayerNorm
    head = nn.Sequential(norm(size.width), nn.Linear(size.width, size.words, bias=False))
    return [Embedding(), *(Block() for _ in range(size.blocks)), head]


def loss_of(logits: Any, ids: Any) -> Any:
    """Returns the loss of the next word."""
    import torch

    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


# Sides.


class Run(NamedTuple):
    """The parameters of a side."""

    model: str
    schedule: str
    size: Size
    device: str
    steps: int

    def precision(self, device: Any) -> Any:
        """Returns the autocast region of a model."""
        import torch

        return torch.autocast(device.type, torch.bfloat16) if self.model == "llama" else contextlib.nullcontext()

    def batches(self) -> Any:
        """Yields the words of each step, the same on all sides."""
        import torch

        draw = torch.Generator().manual_seed(1)
        for _ in range(self.steps):
            yield torch.randint(0, self.size.words, (MICROS * self.size.rows, self.size.length), generator=draw)


def plain(run: Run) -> list[tuple[float, float]]:
    """Returns loss and seconds of each step of one process."""
    import torch
    from torch import nn

    device = place_of(run.device)
    model = nn.Sequential(*pieces_of(run.model, run.size)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step(ids: Any) -> float:
        optimizer.zero_grad()
        total = 0.0
        for part in ids.to(device).chunk(MICROS):
            with run.precision(device):
                loss = loss_of(model(part), part) * (1 / MICROS)
            loss.backward()
            total += loss.item()
        optimizer.step()
        return total

    return timed(run, device, step)


def pipelining(run: Run) -> list[tuple[float, float]]:
    """Returns loss and seconds of each step of torch.distributed.pipelining's interleaved 1F1B, with all stages in this
    process."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B

    device = place_of(run.device)
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=0, world_size=1)
        pieces = pieces_of(run.model, run.size)
        first = [s * len(pieces) // STAGES for s in range(STAGES)]
        parts = [nn.Sequential(*pieces[a:b]).to(device) for a, b in zip(first, [*first[1:], len(pieces)], strict=True)]
        stages = [PipelineStage(part, s, STAGES, device) for s, part in enumerate(parts)]
        schedule = ScheduleInterleaved1F1B(stages, MICROS, loss_fn=loss_of)
        optimizer = torch.optim.AdamW([p for part in parts for p in part.parameters()], lr=1e-4)

        def step(ids: Any) -> float:
            optimizer.zero_grad()
            losses: list[Any] = []
            words = ids.to(device)
            with run.precision(device):
                schedule.step(words, target=words, losses=losses)
            optimizer.step()
            return float(sum(loss.item() for loss in losses) / MICROS)

        found = timed(run, device, step)
        dist.destroy_process_group()
    return found


def hetu(run: Run) -> list[tuple[float, float]]:
    """Returns loss and seconds of each step of a worker of hetu.torch."""
    import torch

    import hetu.torch

    device = place_of(run.device)
    pipe = hetu.torch.Pipeline(pieces_of(run.model, run.size), loss_of, run.schedule, MICROS, device=device)
    optimizer = torch.optim.AdamW(pipe.parameters(), lr=1e-4)

    def step(ids: Any) -> float:
        with run.precision(device):
            loss = pipe.step(ids, ids)
        optimizer.step()
        return loss

    return timed(run, device, step)


def place_of(name: str) -> Any:
    """Returns the device that all sides share, the first of its kind."""
    import torch

    torch.use_deterministic_algorithms(True, warn_only=True)
    if name == "far":  # the simulated accelerator of the tests
        sys.path.insert(0, str(HERE.parents[1] / "torch_device"))
        import far

        far.load()
    return torch.device(name) if name == "cpu" else torch.device(name, 0)


def timed(run: Run, device: Any, step: Any) -> list[tuple[float, float]]:
    """Returns the loss of each step and its seconds."""
    import torch

    def wait() -> None:
        if device.type != "cpu":
            torch.accelerator.synchronize(device)

    found = []
    for ids in run.batches():
        wait()
        start = time.perf_counter()
        loss = step(ids)
        wait()
        found.append((loss, time.perf_counter() - start))
    return found


SIDES = {"plain": plain, "pipelining": pipelining, "hetu": hetu}


# The table.


def start(side: str, run: Run, words: argparse.Namespace) -> dict[str, Any]:
    """Runs a side in separate processes. Returns its losses and the median of its steps, or the reason why there are none.
    """
    launcher = ["heturun", "-w", str(words.workers)] if side == "hetu" else []
    command = [*launcher, sys.executable, str(HERE), "--side", side, "--models", run.model,
               "--schedules", run.schedule or "-", "--size", words.size, "--device", words.device,
               "--steps", str(words.steps)]
    threads = {"OMP_NUM_THREADS": "1"} if words.device in ("cpu", "far") else {}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=words.seconds,
                          env={**os.environ, "CUBLAS_WORKSPACE_CONFIG": ":4096:8", **threads})
    lines = [line for line in done.stdout.splitlines() if "FIGURES " in line]
    if done.returncode or not lines:
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        errors = [line for line in said if "Error" in line]
        return {"problem": (errors or said or ["no output"])[-1][-200:]}
    found = json.loads(lines[0].partition("FIGURES ")[2])
    warm = found[2:] or found  # the first steps set up kernels and memory
    return {"losses": [loss for loss, _ in found], "ms": round(1e3 * statistics.median(s for _, s in warm), 1)}


def judge(figures: dict[str, Any], expected: dict[str, Any], limit: float) -> str:
    """Compares losses with plain PyTorch's, and returns the result as text. Sets figures["well"] to true if they agree."""
    if "losses" not in figures or "losses" not in expected:
        figures["well"] = False
        return figures.get("problem", "plain PyTorch has no losses")
    if figures["losses"] == expected["losses"]:
        figures["well"] = True
        return "bit for bit"
    apart = max(abs(a - b) / abs(b) for a, b in zip(figures["losses"], expected["losses"], strict=True))
    figures["apart"], figures["well"] = apart, math.isfinite(apart) and apart <= limit
    return f"differ by {apart:.1e} at most" + ("" if figures["well"] else f", more than {limit:g}")


def table(words: argparse.Namespace) -> int:
    """Runs all sides and prints their figures."""
    told: dict[str, Any] = {}
    print(f"| model | side | losses of {words.steps} steps, beside plain PyTorch | ms per step | ratio |")
    print("|---|---|---|---|---|")
    for model in words.models.split(","):
        size = SIZES[words.size]
        expected = start("plain", Run(model, "", size, words.device, words.steps), words)
        sides = [("plain", ""), ("pipelining", ""), *(("hetu", schedule) for schedule in words.schedules.split(","))]
        for side, schedule in sides:
            run = Run(model, schedule, size, words.device, words.steps)
            figures = expected if side == "plain" else start(side, run, words)
            note = judge(figures, expected, LIMITS[model])
            ratio = f"{figures['ms'] / expected['ms']:.2f}" if "ms" in figures and "ms" in expected else "-"
            title = {"plain": "plain PyTorch, one process",
                     "pipelining": f"torch's pipelining, {STAGES} stages in one process"}
            name = title.get(side, f"hetu.torch, {words.workers} workers, {schedule}")
            print(f"| {model} | {name} | {note} | {figures.get('ms', '-')} | {ratio} |", flush=True)
            told[f"{model} {side} {schedule}".strip()] = figures
    if words.json:
        Path(words.json).write_text(json.dumps(told, indent=1) + "\n")
    # torch's own pipelining is included for its time: a model that it can't run isn't a failure.
    return 0 if all(one["well"] for name, one in told.items() if "pipelining" not in name) else 1


def main() -> int:
    """Runs the table, or one side of it (--side), whose first worker prints its figures."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--device", default="cuda", help="cuda, or another accelerator of PyTorch, or cpu")
    words.add_argument("--size", default="full", choices=SIZES)
    words.add_argument("--steps", type=int, default=7)
    words.add_argument("--workers", type=int, default=4)
    words.add_argument("--models", default="gpt,llama")
    words.add_argument("--schedules", default=",".join(SCHEDULES))
    words.add_argument("--seconds", type=float, default=200, help="that a side may take")
    words.add_argument("--json", metavar="FILE")
    words.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    asked = words.parse_args()
    if find_spec("torch") is None:
        print("torch_table: PyTorch isn't installed, so nothing can be compared", file=sys.stderr)
        return 3
    if not asked.side:
        return table(asked)
    found = SIDES[asked.side](Run(asked.models, asked.schedules, SIZES[asked.size], asked.device, asked.steps))
    if asked.side != "hetu" or os.environ.get("OMPI_COMM_WORLD_RANK", "0") == "0":
        print("FIGURES " + json.dumps(found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

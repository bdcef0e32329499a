"""hetu.torch beside torch.distributed.pipelining over gloo: the same model, cuts, kernels, micro-batches and optimizer, in
the same two processes of one thread, a step of each in turn.

    python3 tests/bench/torch_pipelines.py                               # all: about 12 minutes on two quiet cores
    python3 tests/bench/torch_pipelines.py --only bert:zb-v,gpt2:1f1b --steps 3
    python3 tests/bench/torch_pipelines.py --overhead                    # per instruction, of empty modules: a minute

Prints per schedule the medians of both, and the median of the ratios of neighbouring steps; then the best of each side. A
schedule that one side cannot run is said to be so. Goal of issue 21: each ratio 0.95 at most, best to best 0.90.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from turns import OtherWork

ROWS, LENGTH = 8, 128
OURS = ("gpipe", "1f1b", "zb-h1", "zb-h2", "zb-v", "v-half", "interleaved-1f1b")  # of which the best counts, beside theirs
THEIRS = {"gpipe": "ScheduleGPipe", "1f1b": "Schedule1F1B", "interleaved-1f1b": "ScheduleInterleaved1F1B",
          "looped-bfs": "ScheduleLoopedBFS", "interleaved-zb": "ScheduleInterleavedZeroBubble",
          "zb-v": "ScheduleZBVZeroBubble", "dualpipev": "ScheduleDualPipeV"}
V_SHAPED = ("zb-v", "dualpipev")
MICROS = 8
SMALL = "--small" in sys.argv


# ---- workers ----


def model_of(name: str) -> tuple[Any, Any, int]:
    """Of transformers, without dropout and ties; its pieces; its words."""
    import transformers

    import hetu.torch.blocks

    if name == "bert":
        sizes = {"vocab_size": 500, "hidden_size": 64, "num_hidden_layers": 6, "num_attention_heads": 2,
                 "intermediate_size": 128} if SMALL else {}
        config = transformers.BertConfig(tie_word_embeddings=False, hidden_dropout_prob=0.0,
                                         attention_probs_dropout_prob=0.0, **sizes)
        whole = transformers.BertForMaskedLM(config)
    else:
        sizes = {"vocab_size": 500, "n_embd": 64, "n_layer": 6, "n_head": 2} if SMALL else {}
        config = transformers.GPT2Config(tie_word_embeddings=False, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **sizes)
        whole = transformers.GPT2LMHeadModel(config)
    return whole.train(), hetu.torch.blocks.split(whole), config.vocab_size


def loss_of(logits: Any, labels: Any) -> Any:
    """Of all words."""
    import torch

    return torch.nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten())


class Ours:
    """A training by hetu.torch."""

    def __init__(self, name: str, method: str, first: list[int], ids: Any) -> None:
        import torch

        import hetu.torch

        torch.manual_seed(0)
        _, pieces, _ = model_of(name)
        options = {"chunks": 2} if method in ("interleaved-1f1b", "looped-bfs", "interleaved-zb") else {}
        self.pipe = hetu.torch.Pipeline(pieces, loss_of, method, MICROS, first_pieces=first, **options)
        self.optimizer = torch.optim.AdamW(self.pipe.parameters(), lr=1e-5, fused=True)
        self.ids = ids

    def step(self) -> None:
        """One."""
        self.pipe.step({"input_ids": self.ids}, self.ids)
        self.optimizer.step()


class Theirs:
    """The same by torch.distributed.pipelining."""

    def __init__(self, name: str, method: str, first: list[int], ids: Any) -> None:
        import torch
        import torch.distributed as dist
        from torch.distributed.pipelining import PipelineStage, schedules

        torch.manual_seed(0)
        _, pieces, _ = model_of(name)
        rank, count = dist.get_rank(), len(first)
        ends = [*first[1:], len(pieces.pieces)]
        self.mine = [rank] if count == 2 else [rank, 3 - rank] if method in V_SHAPED else [rank, rank + 2]
        self.count = count
        parts = [_Part(pieces.pieces[first[s]:ends[s]], s == 0) for s in self.mine]
        stages = [PipelineStage(part, s, count, torch.device("cpu")) for part, s in zip(parts, self.mine, strict=True)]
        self.schedule = getattr(schedules, THEIRS[method])(stages if count > 2 else stages[0], MICROS, loss_fn=loss_of)
        self.optimizer = torch.optim.AdamW([p for part in parts for p in part.parameters()], lr=1e-5, fused=True)
        self.ids = ids

    def step(self) -> None:
        """One; outputs are not gathered."""
        self.optimizer.zero_grad()
        last = {"target": self.ids, "losses": []} if self.count - 1 in self.mine else {}
        self.schedule.step(*([self.ids] if 0 in self.mine else []), return_outputs=False, **last)
        self.optimizer.step()


def _Part(pieces: Any, is_first: bool) -> Any:  # noqa: N802 a class, once PyTorch is there
    import torch

    class Part(torch.nn.Module):
        """Pieces, as one that tensors go into and out of."""

        def __init__(self) -> None:
            super().__init__()
            self.pieces = torch.nn.ModuleList(pieces)

        def forward(self, x: Any) -> Any:
            """A tensor."""
            value = {"input_ids": x} if is_first else x
            for piece in self.pieces:
                if isinstance(value, torch.Tensor) and getattr(piece, "wants_dict", False):
                    value = {"hidden": value, "attention_mask": None}
                value = piece(value)
            return value["hidden"] if isinstance(value, dict) else value

    for number, piece in enumerate(pieces):  # BERT's hand on a dict
        piece.wants_dict = is_first is False and number == 0 and _is_bert(piece)
    return Part()


def _is_bert(piece: Any) -> bool:
    return any("Bert" in type(module).__name__ for module in piece.modules())


def work(name: str, methods: list[str], steps: int) -> None:
    """What each of the two processes does."""
    import torch
    import torch.distributed as dist

    import hetu.torch

    torch.set_num_threads(1)
    rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", "0"))
    dist.init_process_group("gloo", init_method=f"file://{os.environ['MEET']}", rank=rank, world_size=2)
    _, pieces, words = model_of(name)
    ids = torch.randint(0, words, (ROWS, LENGTH), generator=torch.Generator().manual_seed(1))
    part = ids[:ROWS // MICROS]
    cuts = {count: hetu.torch.cut_by_time(pieces, loss_of, {"input_ids": part}, part, count) for count in (2, 4)}
    del pieces
    if rank == 0:
        print(f"{name}: {ROWS} x {LENGTH}, {MICROS} micro-batches, cuts {cuts[2]} and {cuts[4]}", flush=True)
    best: dict[str, tuple[float, str]] = {}
    for method in methods:
        first = cuts[2 if method in ("gpipe", "1f1b", "zb-h1", "zb-h2") else 4]
        sides = [Ours(name, method, first, ids), Theirs(name, method, first, ids) if method in THEIRS else None]
        seconds: list[list[float]] = [[], []]
        for turn in range(steps + 1):  # the first warms up
            for times, side in zip(seconds, sides, strict=True):
                if side is not None:
                    dist.barrier()
                    start = time.perf_counter()
                    side.step()
                    dist.barrier()
                    took = time.perf_counter() - start
                    if rank == 0:
                        print(f"    {method} turn {turn}, {type(side).__name__.lower()}: {took:.2f} s", file=sys.stderr,
                              flush=True)
                    if turn:
                        times.append(took)
        if rank == 0:
            tell(method, seconds, best)
        del sides
        gc.collect()
    if rank == 0:
        tell_best(name, best)
    dist.destroy_process_group()


def tell(method: str, seconds: list[list[float]], best: dict[str, tuple[float, str]]) -> None:
    """One line."""
    ours, theirs = seconds
    best["ours"] = min(best.get("ours", (1e9, "")), (statistics.median(ours), method))
    line = f"  {method:18} Hetu {statistics.median(ours):7.3f} s"
    if theirs:
        best["theirs"] = min(best.get("theirs", (1e9, "")), (statistics.median(theirs), method))
        ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
        line += (f", torch {statistics.median(theirs):7.3f} s, ratio {statistics.median(ratios):.3f} "
                 f"({min(ratios):.3f} to {max(ratios):.3f})")
    print(line, flush=True)


def tell_best(name: str, best: dict[str, tuple[float, str]]) -> None:
    """Best to best."""
    ours, theirs = best.get("ours"), best.get("theirs")
    if ours and theirs:
        print(f"  {name}: best of Hetu {ours[1]} {ours[0]:.3f} s, best of torch {theirs[1]} {theirs[0]:.3f} s, ratio "
              f"{ours[0] / theirs[0]:.3f}", flush=True)


# ---- overhead ----


def overhead(steps: int) -> None:
    """One process, whose plans have all kinds of instructions: what an instruction takes beyond what PyTorch's own calls do,
    one after the other, of modules that only hand on."""
    import torch
    from torch import nn

    import hetu.torch

    torch.set_num_threads(1)
    micros = 16
    x = torch.ones(micros, 4)
    loss = nn.MSELoss()
    for title, make in (("empty", nn.Identity), ("linear 4 x 4", lambda: nn.Linear(4, 4))):
        for method, chunks in (("gpipe", 1), ("1f1b", 1), ("zb-h1", 1), ("zb-v", 2), ("varuna", 1), ("interleaved-1f1b", 2)):
            options: dict[str, Any] = {"chunks": 2} if method == "interleaved-1f1b" else {}
            pieces = [nn.Linear(4, 4), *(make() for _ in range(chunks))]
            pipe = hetu.torch.Pipeline(pieces, loss, method, micros, **options)
            pipe.step(x, x)
            count = [0]
            function = pipe.functions.compute

            def counted(kind: str, placement: int, micro: int, count: list[int] = count,
                        function: Callable[[str, int, int], None] = function) -> None:
                count[0] += 1
                function(kind, placement, micro)

            pipe.functions.compute = counted  # type: ignore[method-assign]
            pipe.step(x, x)
            pipe.functions.compute = function  # type: ignore[method-assign]
            instructions = count[0]

            def plain(pieces: list[Any] = pieces) -> None:
                for row, wanted in zip(x.split(1), x.split(1), strict=True):
                    value = row
                    for piece in pieces:
                        value = piece(value)
                    (loss(value, wanted) / micros).backward()

            own, bare = [], []
            for _ in range(steps):
                start = time.process_time()
                pipe.step(x, x)
                own.append(time.process_time() - start)
                start = time.process_time()
                plain()
                bare.append(time.process_time() - start)
            each = (statistics.median(own) - statistics.median(bare)) / instructions
            print(f"  {title:14} {method:18} {instructions:4} instructions, {1e6 * each:6.1f} us each beyond PyTorch's "
                  f"calls (step {1e3 * statistics.median(own):.2f} ms, plain {1e3 * statistics.median(bare):.2f} ms)",
                  flush=True)


# ---- the job ----


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="MODEL or MODEL:METHOD, several with commas; models are bert and gpt2")
    parser.add_argument("--steps", type=int, default=5, help="of each side, after one that warms up")
    parser.add_argument("--small", action="store_true", help="models of a second, to see that all of it runs")
    parser.add_argument("--overhead", action="store_true")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        name, _, methods = args.work.partition(":")
        work(name, methods.split(","), args.steps)
        return 0
    if args.overhead:
        overhead(20 * args.steps)
        return 0
    methods = list(dict.fromkeys([*THEIRS, *OURS]))
    wanted = {"bert": methods, "gpt2": methods} if not args.only else {}
    for one in (args.only or "").split(",") if args.only else []:
        name, _, method = one.partition(":")
        wanted.setdefault(name, []).extend([method] if method else methods)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    for name, of in wanted.items():
        other = OtherWork()
        meet = f"/tmp/torch_pipelines.{os.getpid()}.{name}"
        words = ["--work", f"{name}:{','.join(of)}", "--steps", str(args.steps), *(["--small"] if args.small else [])]
        done = subprocess.run(["heturun", "-w", "2", sys.executable, __file__, *words], env={**environment, "MEET": meet},
                              check=False)
        Path(meet).unlink(missing_ok=True)
        if done.returncode:
            return done.returncode
        print(f"  processors that others took meanwhile: {other.seen()[0]:.2f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

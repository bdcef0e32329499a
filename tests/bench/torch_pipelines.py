"""Times hetu.torch and torch.distributed.pipelining over gloo: the same model, cuts, kernels, micro-batches and optimizer.

Each side is a separate job of two processes of one thread, in its usual form. One side takes a step while the other waits,
in alternating order.

    python3 tests/bench/torch_pipelines.py                               # all: about 12 minutes on two quiet cores
    python3 tests/bench/torch_pipelines.py --only bert:zb-v,gpt2:1f1b --steps 5
    python3 tests/bench/torch_pipelines.py --overhead                    # per instruction, of empty modules: a minute

Prints per schedule the medians of both, the median of the ratios of adjacent steps, and the same ratio for the CPU seconds
of both workers together, which other load on the machine changes least. Then prints the best schedule of each side.
Schedules that one side can't run are marked. Goal: each ratio at most 0.95, best to best at most 0.90."""

from __future__ import annotations

import argparse
import gc
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any, NamedTuple

from turns import OtherWork

ROWS, LENGTH = 8, 128
OURS = ("zb-h1",)  # schedules of Hetu in addition to the common ones; they count for the best, too
THEIRS = {"gpipe": "ScheduleGPipe", "1f1b": "Schedule1F1B", "interleaved-1f1b": "ScheduleInterleaved1F1B",
          "looped-bfs": "ScheduleLoopedBFS", "interleaved-zb": "ScheduleInterleavedZeroBubble",
          "zb-v": "ScheduleZBVZeroBubble", "dualpipev": "ScheduleDualPipeV"}
V_SHAPED = ("zb-v", "dualpipev")
MICROS = 8
SMALL = "--small" in sys.argv


# Workers.


def model_of(name: str) -> tuple[Any, Any, int]:
    """Returns a model of transformers without dropout and ties, its pieces, and its number of words."""
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
    """Returns the cross entropy of all words."""
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
        """Trains one step."""
        self.pipe.step({"input_ids": self.ids}, self.ids)
        self.optimizer.step()


class Theirs:
    """The same training by torch.distributed.pipelining."""

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
        given = boundaries_of(pieces.pieces, ids)
        parts = [_Part(pieces.pieces[first[s]:ends[s]], given[first[s]]) for s in self.mine]
        stages = [PipelineStage(part, s, count, torch.device("cpu")) for part, s in zip(parts, self.mine, strict=True)]
        self.schedule = getattr(schedules, THEIRS[method])(stages if count > 2 else stages[0], MICROS, loss_fn=loss_of)
        self.optimizer = torch.optim.AdamW([p for part in parts for p in part.parameters()], lr=1e-5, fused=True)
        self.ids = ids

    def step(self) -> None:
        """Trains one step. Outputs are not gathered."""
        self.optimizer.zero_grad()
        last = {"target": self.ids, "losses": []} if self.count - 1 in self.mine else {}
        self.schedule.step(*([self.ids] if 0 in self.mine else []), return_outputs=False, **last)
        self.optimizer.step()


def boundaries_of(pieces: Any, ids: Any) -> list[Any]:
    """Returns the input of each piece, for one micro-batch."""
    import torch

    values: list[Any] = [{"input_ids": ids[:ROWS // MICROS]}]
    with torch.no_grad():
        for piece in pieces[:-1]:
            values.append(piece(values[-1]))
    return values


def _Part(pieces: Any, given: Any) -> Any:  # noqa: N802 a class, once PyTorch is there
    import torch

    from hetu.torch.values import flatten, unflatten

    leaves, tree = flatten(given)
    tensors = [n for n, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    assert len(tensors) == 1, "PyTorch's stage is given one tensor here"

    class Part(torch.nn.Module):
        """Pieces as one module that takes a tensor and returns one."""

        def __init__(self) -> None:
            super().__init__()
            self.pieces = torch.nn.ModuleList(pieces)

        def forward(self, x: Any) -> Any:
            """Returns the one tensor that crosses the boundary, or the logits."""
            value = unflatten([x if n in tensors else leaf for n, leaf in enumerate(leaves)], tree)
            for piece in self.pieces:
                value = piece(value)
            made, = (leaf for leaf in flatten(value)[0] if isinstance(leaf, torch.Tensor))
            return made

    return Part()


def cuts_of(name: str) -> dict[int, list[int]]:
    """Returns the cuts into 2 and 4 stages, by the times of pieces in this process."""
    import hetu.torch

    _, pieces, words = model_of(name)
    part = batch(words)[:ROWS // MICROS]
    return {count: hetu.torch.cut_by_time(pieces, loss_of, {"input_ids": part}, part, count) for count in (2, 4)}


def batch(words: int) -> Any:
    """Returns rows of words."""
    import torch

    return torch.randint(0, words, (ROWS, LENGTH), generator=torch.Generator().manual_seed(1))


def work(side: str, name: str) -> None:
    """Runs a process of a side. Worker 0 gets orders from the driver, and passes them to worker 1."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    rank, meet = int(os.environ.get("OMPI_COMM_WORLD_RANK", "0")), os.environ["MEET"]
    dist.init_process_group("gloo", init_method=f"file://{meet}.{side}", rank=rank, world_size=2)
    driver = Client(f"{meet}.socket") if rank == 0 else None
    if driver:
        driver.send(side)
    trained: Any = None
    while True:
        order: list[Any] = [driver.recv() if driver else None]
        dist.broadcast_object_list(order)
        answer: Any = None
        if order[0] is None:
            break
        if order[0] == "cuts":
            answer = cuts_of(name)
        elif order[0] == "step":
            answer = one_step(trained)
        else:
            _, method, first = order[0]
            trained = None
            gc.collect()
            words = 500 if SMALL else 30522 if name == "bert" else 50257
            trained = (Ours if side == "ours" else Theirs)(name, method, first, batch(words))
        dist.barrier()
        if driver:
            driver.send(answer)
    trained = None
    dist.destroy_process_group()


class Took(NamedTuple):
    """A step: seconds, CPU seconds of both workers, and their part in the kernel."""

    seconds: float
    processor: float
    kernel: float


def one_step(trained: Any) -> Took:
    """Measures a step from the common start until both workers are done."""
    import torch
    import torch.distributed as dist

    dist.barrier()
    before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    trained.step()
    dist.barrier()
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    kernel = after.ru_stime - before.ru_stime
    used = torch.tensor([after.ru_utime - before.ru_utime + kernel, kernel], dtype=torch.float64)
    dist.all_reduce(used)
    return Took(seconds, *used.tolist())


# The driver.


def compare(name: str, methods: list[str], steps: int, sides: dict[str, Connection]) -> None:
    """Compares all methods of a model in two jobs."""

    def ask(side: str, order: Any) -> Any:
        sides[side].send(order)
        return sides[side].recv()

    cuts = ask("ours", "cuts")
    print(f"{name}: {ROWS} x {LENGTH}, {MICROS} micro-batches, cuts {cuts[2]} and {cuts[4]}", flush=True)
    best: dict[str, tuple[float, str]] = {}
    for method in methods:
        both = ["ours", "theirs"] if method in THEIRS else ["ours"]
        for side in both:
            ask(side, ("begin", method, cuts[2 if method in ("gpipe", "1f1b", "zb-h1") else 4]))
        took: dict[str, list[Took]] = {side: [] for side in both}
        for turn in range(steps + 1):  # the first warms up
            for side in both if turn % 2 else both[::-1]:
                one = ask(side, "step")
                print(f"    {method} turn {turn}, {side}: {one.seconds:.2f} s, processor {one.processor:.2f} s, in the "
                      f"kernel {one.kernel:.2f} s", file=sys.stderr, flush=True)
                if turn:
                    took[side].append(one)
        tell(method, took, best)
    ours, theirs = best.get("ours"), best.get("theirs")
    if ours and theirs:
        print(f"  {name}: best of Hetu {ours[1]} {ours[0]:.3f} s, best of torch {theirs[1]} {theirs[0]:.3f} s, ratio "
              f"{ours[0] / theirs[0]:.3f}", flush=True)


def tell(method: str, took: dict[str, list[Took]], best: dict[str, tuple[float, str]]) -> None:
    """Prints one line."""
    middle = {side: statistics.median(one.seconds for one in steps) for side, steps in took.items()}
    for side, seconds in middle.items():
        best[side] = min(best.get(side, (1e9, "")), (seconds, method))
    line = f"  {method:18} Hetu {middle['ours']:7.3f} s"
    if "theirs" in took:
        pairs = list(zip(took["ours"], took["theirs"], strict=True))
        ratios = [a.seconds / b.seconds for a, b in pairs]
        used = [a.processor / b.processor for a, b in pairs]
        line += (f", torch {middle['theirs']:7.3f} s, ratio {statistics.median(ratios):.3f} ({min(ratios):.3f} to "
                 f"{max(ratios):.3f}), of processor seconds {statistics.median(used):.3f}")
    print(line, flush=True)


def drive(name: str, methods: list[str], args: argparse.Namespace) -> int:
    """Starts both jobs of a model and ends them."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    with tempfile.TemporaryDirectory() as folder:
        meet = str(Path(folder, "meet"))
        with Listener(f"{meet}.socket") as listener:
            jobs = [subprocess.Popen(["heturun", "-w", "2", sys.executable, __file__, "--work", f"{side}:{name}",
                                      *(["--small"] if args.small else [])], env={**environment, "MEET": meet})
                    for side in ("ours", "theirs")]
            sides: dict[str, Connection] = {}
            try:
                for _ in jobs:
                    connection = listener.accept()
                    sides[connection.recv()] = connection
                compare(name, methods, args.steps, sides)
                for connection in sides.values():
                    connection.send(None)
            except EOFError:
                print(f"{name}: a job has ended in the middle, as it says above", file=sys.stderr)
                for job in jobs:
                    job.terminate()
            return max(abs(job.wait()) for job in jobs)


# The overhead.


def overhead(steps: int) -> None:
    """Measures the time per instruction beyond PyTorch's own calls, in one process whose plans have all kinds of
    instructions. Modules pass their input on, and PyTorch's calls are timed one after the other."""
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


# The command line.


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="MODEL or MODEL:METHOD, several with commas; models are bert and gpt2")
    parser.add_argument("--steps", type=int, default=2, help="of each side, after one that warms up")
    parser.add_argument("--small", action="store_true", help="models of a second, to see that all of it runs")
    parser.add_argument("--overhead", action="store_true")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        work(*args.work.split(":"))
        return 0
    if args.overhead:
        overhead(20 * args.steps)
        return 0
    methods = list(dict.fromkeys([*THEIRS, *OURS]))
    wanted: dict[str, list[str]] = {} if args.only else {"bert": methods, "gpt2": methods}
    for one in args.only.split(",") if args.only else []:
        name, _, method = one.partition(":")
        wanted.setdefault(name, []).extend([method] if method else methods)
    for name, of in wanted.items():
        other = OtherWork()
        failed = drive(name, of, args)
        if failed:
            return failed
        print(f"  processors that others took meanwhile: {other.seen()[0]:.2f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

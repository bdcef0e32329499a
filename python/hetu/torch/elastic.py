"""The layout of a Pipeline in a job of `heturun --elastic --layout`, and the loop that saves and continues.

heturun starts each round with the layout in HETU_ELASTIC. A Pipeline takes its pipelines and micro-batches from there
instead of from the script. The script still defines the training: every layout has the same micro-batches. loop() is the
script's part of a round: it continues from the checkpoint, saves, and ends when a worker was asked to stop."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

from hetu import _hetu, schedule
from hetu.counted import counted
from hetu.process import rounds, stop, watch
from hetu.process.rounds import Layout, refuse
from hetu.torch.optimizer_states import Optimizers


def layout_arguments(found: Layout | None, named: dict[str, Any]) -> tuple[int | None, int, str]:
    """Returns micro_batches, pipelines and sums of a Pipeline. `named` holds its arguments. Throws ValueError if the
    arguments define another training than the layout of the round, or one that can't change its layout."""
    micro_batches, pipelines, sums = named["micro_batches"], named["pipelines"], named["sums"]
    if named["whole_batches"] and named["averaging"] is not None:
        raise ValueError("whole_batches=True is for pipelines that take the same steps, and these average weights, each at "
                         "its own pace: leave averaging= or whole_batches= out")
    if found is None:
        return micro_batches, pipelines, sums or "running"
    fixed = [name for name in ("plan", "averaging", "first_pieces", "devices") if named[name] is not None]
    if fixed:
        refuse(f"Pipeline({fixed[0]}=...): heturun --elastic changes the layout between rounds, and {fixed[0]}= fixes it; "
               f"leave it out")
    plan = named["schedule"]
    if isinstance(plan, _hetu.Schedule) or (isinstance(plan, str) and schedule.is_file(plan)):
        refuse("Pipeline(schedule=...): heturun --elastic changes the layout between rounds, and a finished plan fixes it; "
               "pass the name of a method, such as '1f1b', or a function that makes the plan")
    if not named["whole_batches"]:
        refuse("Pipeline in a job of heturun --elastic: pass whole_batches=True and, to step(), the batch of all pipelines, "
               "so that every layout trains on the same samples")
    total = found.pipelines * found.micro_batches
    if micro_batches is not None and micro_batches * pipelines != total:
        refuse(f"Pipeline(micro_batches={micro_batches}, pipelines={pipelines}) trains {micro_batches * pipelines} "
               f"micro-batches per step, and heturun --layout defines {total} (this round: {found}); make them equal, or "
               f"leave both arguments out")
    return found.micro_batches, found.pipelines, sums or "tree"


class Rounds:
    """A Pipeline's part in an elastic job. Outside such a job, it does nothing."""

    def __init__(self, found: Layout | None) -> None:
        self.layout = found
        self.joined = False  # in loop()
        self.asked = False  # a worker was asked to stop before the current step began; the same on all workers

    def shards(self, asked: bool) -> bool:
        """Returns true if optimizer states are divided. A round of one pipeline has one copy of each state."""
        return asked and not (self.layout and self.layout.pipelines == 1)

    def check_step(self) -> None:
        """Throws ValueError for a step of an elastic job that nothing would save."""
        if self.layout and not self.joined:
            refuse("Pipeline.step() in a job of heturun --elastic needs the loop `for step in hetu.torch.loop(pipe, "
                   "optimizer, steps=..., checkpoint=...)`, which saves the training and continues it")

    def note(self, **what: Any) -> None:
        """Sends a note to heturun, if the job is elastic. Only worker 0 does so."""
        if self.layout and _hetu.env()["worker"] == 0:
            rounds.note(**what)


def loop(pipe: Any, optimizer: Optimizers, *, steps: int, checkpoint: str | os.PathLike[str], save_every: int = 0,
         calls: int = 1, **more: Any) -> Iterator[int]:
    """Yields the numbers of the steps that are left of a training, and saves and continues it. Under heturun --elastic, the
    training goes on in the next round. Collective: every worker runs the loop.

    A step of the loop is one turn, with one update. If a turn accumulates the gradients of several calls of Pipeline.step(),
    Pipeline.steps and the folders of checkpoints count the calls.

    If the folder `checkpoint` has a checkpoint, it is loaded first. The training is saved after every `save_every` steps (0:
    only at the end), at the end, and when a worker is asked to stop (SIGUSR1, or the first Ctrl-C); the loop then ends.

    optimizer, more: as for Pipeline.save().
    steps: the number of steps of the whole training, from 0.
    calls: calls of Pipeline.step() in each turn of the loop. They are above 1 if gradients are accumulated.
    Throws ValueError if a turn makes another number of calls, and the errors of Pipeline.load() and save().
    """
    for name, value, least in (("steps", steps, 1), ("save_every", save_every, 0), ("calls", calls, 1)):
        if value < least:
            raise ValueError(f"loop: {name}={value}; it must be at least {least}")
    if pipe.averages is not None:
        raise ValueError("loop: the pipelines average weights, each at its own pace; use Pipeline.run()")
    own, folder = pipe.rounds, os.path.abspath(checkpoint)
    if pipe.sum([float(bool(_hetu.list_checkpoints(folder)))])[0]:
        pipe.load(folder, optimizer, **more)
        _say(f"continues from step {pipe.steps // calls} of {steps}{_calls(pipe, calls)} in {folder}")
    if pipe.steps % calls:
        raise ValueError(f"loop: {folder} was saved after {pipe.steps} calls of step(), not a multiple of calls={calls}; "
                         f"pass the calls= of that training")
    own.joined = True
    own.note(joined=True)
    try:
        with stop.training(folder), watch.training():
            while pipe.steps < steps * calls:
                before = pipe.steps
                yield before // calls
                if pipe.steps != before + calls:
                    made = pipe.steps - before
                    raise ValueError(f"loop: a turn made {counted(made, 'call')} of step(), and calls={calls}. " + (
                        f"If gradients are accumulated, give loop(..., calls={made})" if made else
                        "Call step() in each turn"))
                done = pipe.steps // calls
                ends = done == steps or own.asked
                if ends or (save_every and done % save_every == 0):
                    pipe.save(folder, optimizer, **more)
                    own.note(saved=pipe.steps)
                if own.asked:
                    _say(f"stopped as asked after {done} of {steps} steps{_calls(pipe, calls)}; saved in {folder}")
                    break
    finally:
        own.joined = False


def _calls(pipe: Any, calls: int) -> str:
    """Returns a note for messages that count turns of several calls, because names of checkpoints count calls."""
    return f" ({pipe.steps} calls of step())" if calls > 1 else ""


def _say(text: str) -> None:
    if _hetu.env()["worker"] == 0:
        print(f"hetu: {text}", file=sys.stderr, flush=True)

"""Jobs whose workers are threads of this process, for notebooks and tests: devices="threads:2x2", pipelines x stages.

The Executor that the script holds is worker 0. The other workers are copies of it, each in its own thread, and take part in
all collective calls. Their steps and hooks are hidden from the script. Messages stay in the process
(net/transport/inproc.h). A job of threads trains to the same weights as a job of processes, bit for bit.
"""

from __future__ import annotations

import copy
import dataclasses
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from hetu import _hetu
from hetu.devices import DeviceError, Layout, lay_out
from hetu.job.hooks import Hooks
from hetu.process.turn import Turn

if TYPE_CHECKING:
    from hetu.job.executor import Executor
    from hetu.job.step import Step

NAME = re.compile(r"threads:([1-9][0-9]{0,2})x([1-9][0-9]{0,2})")
# Methods other than run that all workers call.
TOGETHER = ("weights", "set_weights", "gradients", "gradient_norms", "predict", "evaluate", "save")
_END = object()


def layout_of_threads(name: str) -> Layout:
    """Returns the grid of "threads:<pipelines>x<stages>". Throws DeviceError for other text, and in a job of several
    processes."""
    found = NAME.fullmatch(name)
    if not found:
        raise DeviceError(f"devices {name}: expected threads:<pipelines>x<stages>, such as threads:1x2")
    if _hetu.env()["workers"] > 1:
        raise DeviceError(f"devices {name}: all workers are threads of one process, but heturun has started "
                          f"{_hetu.env()['workers']} processes; start the script without heturun, or choose "
                          f"pipe_{found[1]}_{found[2]}")
    pipelines, stages = int(found[1]), int(found[2])
    return dataclasses.replace(lay_out(pipelines, stages, [("localhost", pipelines * stages)]), name=name)


class Crew:
    """All workers of a job of threads. `join` adds an Executor to the job; all workers call it at once."""

    def __init__(self, chief: Executor, links: Sequence[Any], join: Callable[[Executor], None]) -> None:
        # Imported late: it imports logging, which would slow down each start.
        from concurrent.futures import ThreadPoolExecutor

        self.members = [chief, *(copy.copy(chief) for _ in links[1:])]
        for member, transport in zip(self.members, links, strict=True):
            member.transport = transport
        self.pools = [ThreadPoolExecutor(1, f"hetu-worker-{number}") for number in range(1, len(links))]
        self.mirrors = False  # all workers already run the chief's current call
        self.lock = threading.RLock()  # for collective calls: several threads of the script may make them
        self.do([partial(join, member) for member in self.members])
        for name in TOGETHER:
            setattr(chief, name, self._method(getattr(chief, name), name))
        own = chief.run
        chief.run = lambda *given, **told: self._run(own, given, told)  # type: ignore[method-assign]

    def do(self, works: Sequence[Callable[[], Any]]) -> Any:
        """Runs one function per worker, each in its thread, and returns the first one's result."""
        turn = Turn(self, works[1:])
        return turn.end(works[0])

    def _method(self, own: Callable[..., Any], name: str) -> Callable[..., Any]:
        def called(*given: Any, **told: Any) -> Any:
            with self.lock:
                if self.mirrors:
                    return own(*given, **told)
                self.mirrors = True
                try:
                    others = [partial(getattr(member, name), *given, **told) for member in self.members[1:]]
                    return self.do([partial(own, *given, **told), *others])
                finally:
                    self.mirrors = False

        called.__doc__ = own.__doc__
        return called

    def _run(self, own: Callable[..., Iterator[Step]], given: tuple[Any, ...], told: dict[str, Any]) -> Iterator[Step]:
        if self.mirrors:
            return own(*given, **told)
        beside = Hooks(self.members[0], told.get("hooks", ()), told.get("epoch_steps"))
        theirs = {**told, "hooks": ()}
        if (drain := beside.drain(told.get("drain"))) and len(given) < 9:  # where it is not among the positional arguments
            theirs["drain"] = drain
        return self._steps([own(*given, **told), *(member.run(*given, **theirs) for member in self.members[1:])])

    def _steps(self, runs: Sequence[Iterator[Step]]) -> Iterator[Step]:
        """Yields the chief's steps while all workers run. With a flush at each step, all workers do one step at a time.
        Without a flush, the chief learns of a step when other workers are already beyond it, so the others continue until
        the pipeline is drained."""
        free = self.members[0].job.asynchronous
        turn = None
        try:
            while True:
                with self.lock:
                    turn = turn or Turn(self, [partial(_to_drain, run, free) for run in runs[1:]])
                    step: Any = turn.take(lambda: next(runs[0], _END))
                    if step is _END or not free or step.last:
                        turn.end()
                        turn = None
                if step is _END:
                    return
                yield step
        finally:  # also runs if the loop is left early
            if turn:
                self.members[0].transport.give_up("the loop over a run was left before its pipeline was drained")
            self.do([getattr(run, "close", lambda: None) for run in runs])


def _to_drain(run: Iterator[Step], free: bool) -> None:
    for step in run:
        if not free or step.last:
            return

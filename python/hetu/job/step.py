"""The result of each step of a run."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from hetu.names import near
from hetu.place import of_script, place

V = TypeVar("V")


class Reported(dict[str, V], Generic[V]):
    """Values by name. An unknown name raises KeyError, which lists the known names. `says` is the owner of the names in
    that message."""

    def __init__(self, found: Mapping[str, V], says: str = "this step reports") -> None:
        super().__init__(found)
        self.says = says

    def __missing__(self, name: str) -> V:
        _refuse(self.says, name, self)


def _refuse(says: str, name: str, known: Iterable[str]) -> NoReturn:
    raise of_script(KeyError(f"{place()}{says} no '{name}'; {near(name, known)}"))


@dataclass
class Step:
    """The result of one step.

    index: counts from 0.
    scalars: the fetched scalars, summed over the whole step: the value given to minimize() as "loss", and each listed value
    under the name of its operator (name=).
    samples_of: values per sample, of the global batch in its order.
    sums: other tensors, summed.
    seconds: the time since the previous result; in an asynchronous run a mean over several steps (see Pace).
    step["name"] returns any of these values.
    """

    index: int
    scalars: dict[str, float]
    gradient_norm: float
    learning_rate: float
    seconds: float
    samples: int
    extra: dict[str, float] = field(default_factory=dict)
    last: bool = False  # last step of its run: every update is applied
    meaningless: str = ""  # the part of messages that was left out (payload=), which makes all figures meaningless
    own_samples: int = 0  # samples that the scalars cover: all, or this pipeline's if pipelines average weights
    samples_of: dict[str, Any] = field(default_factory=dict)  # by fetch, in a run that does not train: arrays [samples, ...]
    sums: dict[str, Any] = field(default_factory=dict)  # likewise: arrays without the batch axis
    loss_scale: float | None = None  # only with float16: the scale of the next step
    stop_asked: bool = False  # a worker was asked to stop
    done: int = 0  # steps that the job has done, including this one; if pipelines average weights, the mean of theirs
    skipped: bool = False  # with float16: a gradient was out of range, and no worker has updated

    def __post_init__(self) -> None:
        self.done = self.done or self.index + 1

    def __getitem__(self, name: str) -> Any:
        for values in (self.scalars, self.samples_of, self.sums):
            if name in values:
                return values[name]
        _refuse("this step reports", name, self._known())

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if name[:1] == "_" or "sums" not in self.__dict__:
                raise AttributeError(f"Step has no attribute '{name}'")
            raise of_script(AttributeError(f"{place()}Step has no attribute '{name}'; read reported values as "
                                           f"step['{name}']; {near(name, self._known())}"))

    def _known(self) -> list[str]:
        return [*self.scalars, *self.samples_of, *self.sums]

    @property
    def loss(self) -> float:
        """The value given to minimize(), which every run reports as scalars["loss"]."""
        if "loss" not in self.scalars:
            _refuse("this step reports", "loss", self._known())
        return self.scalars["loss"]

    @property
    def samples_per_s(self) -> float:
        return self.samples / self.seconds if self.seconds > 0 else 0.0


def step_of(result: Mapping[str, Any], names: Collection[str], seconds: float, samples: int, **more: Any) -> Step:
    """Returns the step that a result of _hetu.Job describes.

    names: the fetches to report.
    more: further fields of Step.
    """
    found: list[Reported[Any]] = [Reported({fetch: value for fetch, value in result[kind].items() if fetch in names})
                                  for kind in ("scalars", "samples", "sums")]
    return Step(result["step"], found[0], result["gradient_norm"], result["learning_rate"], seconds, samples,
                last=result["last"], samples_of=found[1], sums=found[2], stop_asked=result["stop_asked"],
                **{"own_samples": samples, "done": result["step"] + 1, **more})


class Pace:
    """Times the steps of an asynchronous run, whose results arrive in bursts: none while the pipeline fills, and several at
    once in the drain. A step's time is the mean over the last SPAN steps of its run. `clock` is for tests."""

    SPAN = 16

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ends = deque([(clock(), 0)], self.SPAN + 1)  # (end of a step, samples of the run until then)

    def seconds(self, samples: int) -> float:
        """Records the end of a step with this number of samples. Returns the seconds that it took."""
        self._ends.append((self._clock(), self._ends[-1][1] + samples))
        (first, before), (last, until) = self._ends[0], self._ends[-1]
        return (last - first) * (samples / (until - before) if until > before else 1 / (len(self._ends) - 1))


class Steps(Iterator[Step]):
    """The steps of a run, each computed on request. If the object is dropped before its first step, it prints a warning if
    `says` is true, because a script without the loop has trained nothing."""

    def __init__(self, made: Generator[Step, None, None], called: str, says: bool) -> None:
        self._made, self._called = made, f"{place()}{called}" if says else ""

    def __next__(self) -> Step:
        self._called = ""
        return next(self._made)

    def close(self) -> None:
        """Leaves the run at its present step."""
        self._called = ""
        self._made.close()

    def __del__(self) -> None:
        if getattr(self, "_called", ""):
            with contextlib.suppress(AttributeError, ValueError):  # the process is ending, and its streams are closed
                print(f"{self._called} made no step, as none was requested: for step in job.run(…), or list(job.run(…))",
                      file=sys.stderr, flush=True)

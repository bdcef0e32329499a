"""Looking into a job and reaching into it: weights and gradients by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from hetu import _hetu
from hetu.arithmetic import kind_of
from hetu.job.step import Reported
from hetu.names import missing_of, near
from hetu.place import placed, refuse

if TYPE_CHECKING:
    import numpy


def _together(text: str) -> str:
    """Of a worker that waits for one which did not call."""
    return text + ("; all workers call this, after the same step" if "has left the job" in text else "")


class Reach:
    """Of an Executor, whose are `graph`, `job` and `transport`."""

    graph: Any
    job: Any
    transport: Any

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            missing_of("Executor", name, dir(type(self)))

    def weights(self, names: Sequence[str] | None = None, own: bool = False) -> dict[str, numpy.ndarray]:
        """The weights and buffers (running statistics) of the whole model by name, copies as float32 arrays: those with
        these `names`, or all. They are what a checkpoint of this moment would hold. Every worker calls it, after the same
        step and with the same names, and each gets the weights of all stages; a call in one worker alone waits for the
        others until the job's timeout. With own=True a worker gets what its own stages hold, and asks nobody.

        Inside a loop over run() it holds for methods that update at the end of each step; a method without a flush
        (pipedream) is asked between runs, or where it was drained. Not of tables on parameter servers.
        """
        return self._look(_hetu.weights, self.job.state, "", names, own)

    def gradients(self, names: Sequence[str] | None = None, own: bool = False) -> dict[str, numpy.ndarray]:
        """The gradients of the last step by name, summed over its micro-batches and pipelines, before clipping; otherwise
        as `weights`. Of a method that updates within a step, those of its last update."""
        return self._look(_hetu.gradients, self.job.gradients, "gradient", names, own)

    def gradient_norms(self) -> dict[str, float]:
        """The Euclidean norm of each parameter's gradient, as `gradients` has it. Every worker calls it; only norms are
        sent."""
        with placed(_together):
            found = _hetu.gradient_norms(self.job.trainers[0], self.transport)
        return Reported({name: found[name] for name, _ in self.graph.parameters if name in found}, "job.gradient_norms gave")

    def set_weights(self, values: Mapping[str, Any]) -> None:
        """Puts arrays in the place of weights and buffers, by name; those that are not named stay, and so do optimizer
        states and the step. Every worker calls it with the same arrays, whatever its stages hold. Throws ValueError, before
        anything has changed: a name that the model has not, another shape, workers that give different values."""
        import numpy as np  # which most jobs do without

        arrays = {}
        if not isinstance(values, Mapping):
            refuse(f"set_weights: arrays by name are wanted, such as {{'{self.graph.parameters[0][0]}': array}}, got "
                   f"{kind_of(values).split(',')[0]}")
        for name, value in values.items():
            array = np.asarray(value)
            if array.dtype.kind not in "fiu":
                refuse(f"set_weights: '{name}': an array of numbers is wanted, got {array.dtype}")
            arrays[name] = np.ascontiguousarray(array, np.float32).reshape(array.shape)
        with placed(_together):
            _hetu.set_weights(self.job.trainers, arrays, self.transport)

    def _look(self, gather: Any, mine: Any, state: str, names: Sequence[str] | None, own: bool) -> dict[str, numpy.ndarray]:
        if isinstance(names, str):
            refuse(f"a list of names is wanted, got the text {names!r}")
        says = f"job.{'gradients' if state else 'weights'} gave"
        if not own:
            with placed(_together):
                found = gather(self.job.trainers[0], list(names or []), self.transport)
            order = names or [name for name, _ in [*self.graph.parameters, *self.graph.buffers]]
            return Reported({name: found[name] for name in order if name in found}, says)
        scale = self.job.gradient_scale if state else 1.0
        held = {name: array / scale if scale != 1 else array.copy() for name, kind, array, _ in mine() if kind == state}
        if missing := [name for name in names or () if name not in held]:
            refuse(f"this worker's stages hold no '{missing[0]}'; {near(missing[0], held)}")
        return Reported({name: held[name] for name in names} if names else held, "this worker's stages hold")


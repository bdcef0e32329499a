"""Access to a job's weights and gradients by name."""

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
    """Adds a hint to the error of a worker that waits for another one, which did not make the call."""
    return text + ("; all workers must make this call, after the same step" if "has left the job" in text else "")


class Reach:
    """The part of Executor for weights and gradients. Executor defines `graph`, `job` and `transport`."""

    graph: Any
    job: Any
    transport: Any

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            missing_of("Executor", name, dir(type(self)))

    def weights(self, names: Sequence[str] | None = None, own: bool = False) -> dict[str, numpy.ndarray]:
        """Returns the weights and buffers (running statistics) of the whole model by name, as float32 copies.

        names: the tensors to return; by default all.
        own: returns only the tensors of this worker's stages, without communication.
        The values are those that a checkpoint at this moment would contain. Collective: every worker calls it, after the
        same step and with the same names, and receives the weights of all stages. A call in only one worker waits for the
        others until the job's timeout.
        Inside a loop over run(), it works for methods that update at the end of each step. For a method without a flush
        (pipedream), call it between runs or after a drain. Tables on parameter servers are not included.
        """
        return self._look(_hetu.weights, self.job.state, "", names, own)

    def gradients(self, names: Sequence[str] | None = None, own: bool = False) -> dict[str, numpy.ndarray]:
        """Returns the gradients of the last step by name, summed over its micro-batches and pipelines, before clipping.
        Arguments and conditions are those of `weights`. For a method that updates within a step, the gradients are those of
        the last update."""
        return self._look(_hetu.gradients, self.job.gradients, "gradient", names, own)

    def gradient_norms(self) -> dict[str, float]:
        """Returns the Euclidean norm of each parameter's gradient (see `gradients`). Collective: every worker calls it.
        Only norms are sent."""
        with placed(_together):
            found = _hetu.gradient_norms(self.job)
        return Reported({name: found[name] for name, _ in self.graph.parameters if name in found},
                        "job.gradient_norms returned")

    def set_weights(self, values: Mapping[str, Any]) -> None:
        """Replaces weights and buffers by arrays, by name. Other tensors, optimizer states and the step stay unchanged.
        Collective: every worker calls it with the same arrays, whatever its stages hold. Throws ValueError, before anything
        has changed, for an unknown name, another shape, or different values on the workers."""
        import numpy as np  # imported late, because most jobs don't need NumPy

        arrays = {}
        if not isinstance(values, Mapping):
            refuse(f"set_weights: expected a dict of arrays by name, such as {{'{self.graph.parameters[0][0]}': array}}, "
                   f"got {kind_of(values).split(',')[0]}")
        for name, value in values.items():
            array = np.asarray(value)
            if array.dtype.kind not in "fiu":
                refuse(f"set_weights: '{name}': expected an array of numbers, got {array.dtype}")
            arrays[name] = np.ascontiguousarray(array, np.float32).reshape(array.shape)
        with placed(_together):
            _hetu.set_weights(self.job, arrays)

    def _look(self, gather: Any, mine: Any, state: str, names: Sequence[str] | None, own: bool) -> dict[str, numpy.ndarray]:
        if isinstance(names, str):
            refuse(f"expected a list of names, got the string {names!r}")
        says = f"job.{'gradients' if state else 'weights'} returned"
        if not own:
            with placed(_together):
                found = gather(self.job, list(names or []))
            order = names or [name for name, _ in [*self.graph.parameters, *self.graph.buffers]]
            return Reported({name: found[name] for name in order if name in found}, says)
        scale = self.job.gradient_scale if state else 1.0
        held = {name: array / scale if scale != 1 else array.copy() for name, kind, array, _ in mine() if kind == state}
        if missing := [name for name in names or () if name not in held]:
            refuse(f"this worker's stages hold no '{missing[0]}'; {near(missing[0], held)}")
        return Reported({name: held[name] for name in names} if names else held, "this worker's stages hold")


"""Access to a job's weights and gradients by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hetu import _hetu
from hetu.arithmetic import kind_of
from hetu.job.step import Reported
from hetu.job.worker import Worker
from hetu.names import near
from hetu.place import placed, refuse

if TYPE_CHECKING:
    import numpy


def _with_hint(text: str) -> str:
    """Adds a hint to the error of a worker that waits for another one, which did not make the call."""
    return text + ("; all workers must make this call, after the same step" if "has left the job" in text else "")


class WeightsAccess:
    """The weights and gradients of a worker. Collective: every worker calls the same methods, except with `own`."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.graph = worker.spec.graph

    def weights(self, names: Sequence[str] | None, own: bool) -> dict[str, numpy.ndarray]:
        """Implements Executor.weights()."""
        return self._look(_hetu.weights, self.worker.job.state, "", names, own)

    def gradients(self, names: Sequence[str] | None, own: bool) -> dict[str, numpy.ndarray]:
        """Implements Executor.gradients()."""
        return self._look(_hetu.gradients, self.worker.job.gradients, "gradient", names, own)

    def gradient_norms(self) -> dict[str, float]:
        """Implements Executor.gradient_norms()."""
        with placed(_with_hint):
            found = _hetu.gradient_norms(self.worker.job)
        return Reported({name: found[name] for name, _ in self.graph.parameters if name in found},
                        "job.gradient_norms returned")

    def set_weights(self, values: Mapping[str, Any]) -> None:
        """Implements Executor.set_weights()."""
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
        with placed(_with_hint):
            _hetu.set_weights(self.worker.job, arrays)

    def _look(self, gather: Any, mine: Any, state: str, names: Sequence[str] | None, own: bool) -> dict[str, numpy.ndarray]:
        if isinstance(names, str):
            refuse(f"expected a list of names, got the string {names!r}")
        says = f"job.{'gradients' if state else 'weights'} returned"
        if not own:
            with placed(_with_hint):
                found = gather(self.worker.job, list(names or []))
            order = names or [name for name, _ in [*self.graph.parameters, *self.graph.buffers]]
            return Reported({name: found[name] for name in order if name in found}, says)
        scale = self.worker.job.gradient_scale if state else 1.0
        held = {name: array / scale if scale != 1 else array.copy() for name, kind, array, _ in mine() if kind == state}
        if missing := [name for name in names or () if name not in held]:
            refuse(f"this worker's stages hold no '{missing[0]}'; {near(missing[0], held)}")
        return Reported({name: held[name] for name in names} if names else held, "this worker's stages hold")


"""Averages of a Pipeline's weights, kept in addition to the weights: exponential moving averages and stochastic weight
averaging."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim import swa_utils

if TYPE_CHECKING:
    from hetu.torch.pipeline import Pipeline


class AveragedModel:
    """torch.optim.swa_utils.AveragedModel of a Pipeline: each worker keeps the averages of its own stages.

        ema = hetu.torch.AveragedModel(pipe, multi_avg_fn=get_ema_multi_avg_fn(0.999))
        …
        optimizer.step()
        ema.update_parameters()
        …
        with ema.applied():
            print(pipe.evaluate(x, y))
        pipe.save(folder, optimizer, ema=ema)

    avg_fn, multi_avg_fn: as in PyTorch; without them the averages are the means over all updates.
    use_buffers: averages buffers too; else the buffers of the last update are kept.
    """

    def __init__(self, pipe: Pipeline, avg_fn: Callable[..., Any] | None = None,
                 multi_avg_fn: Callable[..., Any] | None = None, use_buffers: bool = False) -> None:
        self.pipe = pipe
        self._averaged = swa_utils.AveragedModel(_Tensors(pipe), avg_fn=avg_fn, multi_avg_fn=multi_avg_fn,
                                                 use_buffers=use_buffers)

    @property
    def n_averaged(self) -> int:
        """The number of updates that the averages contain."""
        return int(self._averaged.n_averaged)

    def update_parameters(self, pipe: Pipeline | None = None) -> None:
        """Adds the current weights to the averages. Call it after each step of the optimizer, or less often.

        pipe: the same Pipeline. The parameter exists for scripts that pass the model, as PyTorch's AveragedModel requires.
        """
        if pipe is not None and pipe is not self.pipe:
            raise ValueError("update_parameters: the averages were made of another Pipeline; pass that one, or nothing")
        self._averaged.update_parameters(_Tensors(self.pipe))

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yields the averages of this worker's parameters by their names in the whole model."""
        for (name, _), averaged in self._pairs():
            if isinstance(averaged, nn.Parameter):
                yield name, averaged

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Makes the averages the Pipeline's weights inside the `with` block, for evaluate(), state_dict() and save().
        Collective: every worker enters it. Afterwards the Pipeline has its own weights again."""
        self.pipe.state.check_one("applied")
        if not self.n_averaged:
            raise RuntimeError("applied: there are no averages yet; call update_parameters() first")
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    def _exchange(self) -> None:
        """Swaps the values of weights and averages in place, so that both keep their memory."""
        with torch.no_grad():
            for (_, own), averaged in self._pairs():
                held = own.clone()
                own.copy_(averaged)
                averaged.copy_(held)

    def _pairs(self) -> Iterator[tuple[tuple[str, torch.Tensor], torch.Tensor]]:
        """Yields ((name, tensor), average). Buffers that a state_dict() does not keep have the name ""."""
        names = {id(tensor): name for name, tensor in self.pipe.state.own_by_name()}
        own, averaged = _Tensors(self.pipe), self._averaged.module
        both = zip([*own.parameters(), *own.buffers()], [*averaged.parameters(), *averaged.buffers()], strict=True)
        for one, other in both:
            yield (names.get(id(one), ""), one), other

    def state_dict(self) -> dict[str, Any]:
        """Returns this worker's averages by parameter name, and the number of updates. Pipeline.save() saves the averages
        of all workers, for any cut."""
        return {"n_averaged": self.n_averaged,
                "averages": {name: other.detach() for (name, _), other in self._pairs() if name}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Loads what state_dict() returned on a worker with the same stages. Throws ValueError if an average is missing."""
        averages = state["averages"]
        missing = [name for (name, _), _ in self._pairs() if name and name not in averages]
        if missing:
            raise ValueError(f"the state has no average of '{missing[0]}'")
        with torch.no_grad():
            for (name, _), other in self._pairs():
                if name:
                    other.copy_(averages[name])
            self._averaged.n_averaged.fill_(state["n_averaged"])


class _Tensors(nn.Module):
    """This worker's parameters and buffers in a module of their own. It can be copied without the modules that use them."""

    def __init__(self, pipe: Pipeline) -> None:
        super().__init__()
        stages = nn.ModuleList(pipe.own.values())
        for number, parameter in enumerate(stages.parameters()):
            self.register_parameter(f"parameter{number}", parameter)
        for number, buffer in enumerate(stages.buffers()):
            self.register_buffer(f"buffer{number}", buffer)

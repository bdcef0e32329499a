"""LSTM and GRU. Constructors, names of parameters and initial weights are those of torch.nn. The batch is always the first
axis. B batch, T positions, H hidden_size, D directions: 1, or 2 if bidirectional."""

from __future__ import annotations

import math
from typing import Any

from hetu.functions import concat, stack
from hetu.graph import Value, current
from hetu.init import uniform
from hetu.nn.layers import Dropout, check_last, check_sizes
from hetu.nn.module import Module, ModuleList, Parameter
from hetu.recurrent import gru, lstm

_WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


class _Recurrent(Module):
    """Recurrent layers over the positions of x [B, T, input_size]. A layer after the first reads the outputs of both
    directions of the layer before."""

    gates, states = 0, 0  # gates per unit; tensors per state

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = True,
                 dropout: float = 0.0, bidirectional: bool = False) -> None:
        layer = self.layer = type(self).__name__
        check_sizes(layer, input_size=input_size, hidden_size=hidden_size, num_layers=num_layers)
        if not batch_first:
            current().refuse(f"nn.{layer}: the batch is always the first axis; leave batch_first out")
        if dropout > 0 and num_layers == 1:
            current().refuse(f"nn.{layer}: dropout applies between layers, but there is only one; got dropout={dropout}")
        self.input_size, self.hidden_size, self.num_layers, self.bias = input_size, hidden_size, num_layers, bias
        self.ways = ("", "_reverse") if bidirectional else ("",)
        bound = 1 / math.sqrt(hidden_size)
        for number in range(num_layers):
            width = input_size if number == 0 else hidden_size * len(self.ways)
            shapes: tuple[list[int], ...] = ([width], [hidden_size], [], [])
            for way in self.ways:
                for name, last in zip(_WEIGHTS[:4 if bias else 2], shapes, strict=False):
                    setattr(self, f"{name}_l{number}{way}",
                            Parameter([self.gates * hidden_size, *last], uniform(-bound, bound), decay=bool(last)))
        self.dropouts = ModuleList(Dropout(dropout) for _ in range(num_layers - 1))

    def forward(self, x: Value, hx: Any = None) -> tuple[Value, Any]:
        """Returns y [B, T, D * H] of the last layer, and the final states: h, or (h, c) for an LSTM, each [B, num_layers *
        D, H]. The batch comes first, unlike in PyTorch. States are ordered by layer, the forward direction first.

        hx: the initial states. None: zeros.
        """
        if not isinstance(x, Value) or x.ndim != 3:
            current().refuse(f"nn.{self.layer}: x must be [batch, steps, input_size], got {x!r}")
        check_last(self.layer, x, self.input_size, "input_size")
        given, after = self._given(x, hx), []
        for number in range(self.num_layers):
            found = [self._run(x, number, way, given[number * len(self.ways) + i]) for i, way in enumerate(self.ways)]
            x = concat([y for y, _ in found], -1) if len(found) > 1 else found[0][0]
            after += [state for _, state in found]
            if number + 1 < self.num_layers:
                x = self.dropouts[number](x)
        states = [stack([state[i] for state in after], 1) for i in range(self.states)]
        return x, states[0] if self.states == 1 else tuple(states)

    def _given(self, x: Value, hx: Any) -> list[list[Value] | None]:
        """Returns the initial state for each layer and direction."""
        count = self.num_layers * len(self.ways)
        if hx is None:
            return [None] * count
        states = [hx] if self.states == 1 else list(hx) if isinstance(hx, (list, tuple)) else []
        wanted = [x.shape[0], count, self.hidden_size]
        if len(states) != self.states or any(not isinstance(s, Value) or s.shape != wanted for s in states):
            words = "h" if self.states == 1 else "(h, c), each"
            current().refuse(f"nn.{self.layer}: hx must be {words} {wanted} for x {x!r}, got {hx!r}")
        return [[state[:, i] for state in states] for i in range(count)]

    def _run(self, x: Value, number: int, way: str, given: list[Value] | None) -> tuple[Value, list[Value]]:
        """Runs one layer in one direction. Returns y and the final state."""
        raise NotImplementedError

    def _weights(self, number: int, way: str) -> tuple[Any, Any, Any, Any]:
        found = [getattr(self, f"{name}_l{number}{way}") for name in _WEIGHTS[:4 if self.bias else 2]]
        w_ih, w_hh, b_ih, b_hh = [*found, None, None][:4]
        return w_ih, w_hh, b_ih, b_hh

    def describe(self) -> str:
        return (f"{self.input_size}, {self.hidden_size}, num_layers={self.num_layers}, bias={self.bias}, "
                f"bidirectional={len(self.ways) > 1}")


class LSTM(_Recurrent):
    """A stack of LSTM layers. Source: Hochreiter and Schmidhuber 1997; with forget gates, Gers et al. 2000."""

    gates, states = 4, 2

    def _run(self, x: Value, number: int, way: str, given: list[Value] | None) -> tuple[Value, list[Value]]:
        state = None if given is None else (given[0], given[1])
        y, (h, c) = lstm(x, *self._weights(number, way), state=state, reverse=bool(way))
        return y, [h, c]


class GRU(_Recurrent):
    """A stack of GRU layers. Source: Cho et al. 2014; the reset gate is applied after the product with the state, as in
    PyTorch."""

    gates, states = 3, 1

    def _run(self, x: Value, number: int, way: str, given: list[Value] | None) -> tuple[Value, list[Value]]:
        y, h = gru(x, *self._weights(number, way), state=None if given is None else given[0], reverse=bool(way))
        return y, [h]


__all__ = ["GRU", "LSTM"]

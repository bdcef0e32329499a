"""LSTM and GRU over the positions of a sequence, with PyTorch's weights."""

from __future__ import annotations

from hetu.graph import Value, check_values


def _gates(kind: str, x: Value, weights: tuple[Value, Value], biases: tuple[Value | None, ...]) -> int:
    """Returns the width. Throws ValueError unless the shapes fit: weights [gates * width, input] and [gates * width,
    width], biases [gates * width]."""
    named = {"x": x, "w_ih": weights[0], "w_hh": weights[1], "b_ih": biases[0], "b_hh": biases[1]}
    check_values(kind, **{name: value for name, value in named.items() if value is not None})
    gates = {"lstm": 4, "gru": 3}[kind]
    width = weights[1].shape[-1]
    if x.ndim != 3:
        x.graph.refuse(f"{kind}: x must be [batch, steps, input], got {x!r}")
    wanted = ([gates * width, x.shape[2]], [gates * width, width])
    for name, given, shape in zip(("w_ih", "w_hh"), weights, wanted, strict=True):
        if given.shape != shape:
            x.graph.refuse(f"{kind}: {name} must be {shape} for x {x!r} and a width of {width}, got {given!r}")
    for bias in biases:
        if bias is not None and bias.shape != [gates * width]:
            x.graph.refuse(f"{kind}: a bias must be [{gates * width}], got {bias!r}")
    return width


def _state(kind: str, x: Value, given: Value | None, width: int) -> Value:
    if given is None:
        return x.graph.number(0.0, kind).expand(x.shape[0], width)
    if given.shape != [x.shape[0], width]:
        x.graph.refuse(f"{kind}: a state must be {[x.shape[0], width]} for x {x!r}, got {given!r}")
    return given


def lstm(x: Value, w_ih: Value, w_hh: Value, b_ih: Value | None = None, b_hh: Value | None = None,
         state: tuple[Value, Value] | None = None, reverse: bool = False,
         name: str = "") -> tuple[Value, tuple[Value, Value]]:
    """Runs an LSTM over x [batch, places, input]. Returns y [batch, places, width], and (h, c), each [batch, width], after
    the last position.

    Weights and biases are those of PyTorch's LSTM, in the order i, f, g, o.
    state: (h, c) before the first position. None: zeros.
    reverse: processes the last position first. (h, c) are then the state after position 0.
    """
    graph, width = x.graph, _gates("lstm", x, (w_ih, w_hh), (b_ih, b_hh))
    h, c = (_state("lstm", x, given, width) for given in state or (None, None))
    bias = b_ih + b_hh if b_ih is not None and b_hh is not None else b_ih if b_ih is not None else b_hh
    x = x.flip(1) if reverse else x
    gates = graph.apply("linear", [x, w_ih] if bias is None else [x, w_ih, bias], name and f"{name}.input")
    y, cells, _ = graph.apply_all("lstm", [gates, w_hh, h, c], name)
    return y.flip(1) if reverse else y, (y[:, -1], cells[:, -1])


def gru(x: Value, w_ih: Value, w_hh: Value, b_ih: Value | None = None, b_hh: Value | None = None,
        state: Value | None = None, reverse: bool = False, name: str = "") -> tuple[Value, Value]:
    """Runs a GRU over x [batch, places, input]. Returns y [batch, places, width], and h [batch, width] after the last
    position.

    Weights and biases are those of PyTorch's GRU, in the order r, z, n.
    state: h before the first position. None: zeros.
    reverse: processes the last position first. h is then the state after position 0.
    """
    graph, width = x.graph, _gates("gru", x, (w_ih, w_hh), (b_ih, b_hh))
    x = x.flip(1) if reverse else x
    gates = graph.apply("linear", [x, w_ih] if b_ih is None else [x, w_ih, b_ih], name and f"{name}.input")
    hidden = b_hh if b_hh is not None else graph.apply("fill", [], shape=[3 * width], value=0.0)
    y, _ = graph.apply_all("gru", [gates, w_hh, hidden, _state("gru", x, state, width)], name)
    return y.flip(1) if reverse else y, y[:, -1]


__all__ = ["gru", "lstm"]

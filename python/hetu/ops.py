"""Every operator as a function, created from the operator records of the build (ops/def).

`ops.linear(x, w, b)` adds a node to the current graph. Attributes are keyword arguments. An operator with several outputs
returns a tuple. `help(hetu.ops.linear)` shows the record of the operator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hetu import _hetu
from hetu.graph import Value, current
from hetu.names import missing_from

# Operators that accept a number in place of either input. Value has most of them as Python operators.
_BESIDE_NUMBERS = ("add", "sub", "mul", "div", "pow", "maximum", "minimum", "equal", "not_equal", "less", "less_equal",
                   "greater", "greater_equal")


def _docstring(record: dict[str, Any]) -> str:
    lines = [record["doc"], ""]
    lines.append("Inputs: " + (", ".join(record["inputs"]) or "none"))
    if record["repeats"]:
        lines[-1] += ", and more like the last"
    if record["optional_inputs"]:
        lines[-1] += "; optional: " + ", ".join(record["optional_inputs"])
    for name, fallback, required, doc in record["attrs"]:
        lines.append(f"{name}: {doc} " + ("Required." if required else f"Default {fallback!r}."))
    lines.append("Outputs: " + ", ".join(record["outputs"]))
    return "\n".join(lines)


def _function(record: dict[str, Any]) -> Callable[..., Value | tuple[Value, ...]]:
    op, single = record["name"], len(record["outputs"]) == 1

    def function(*inputs: Any, name: str = "", **attrs: Any) -> Value | tuple[Value, ...]:
        beside = next((x for x in inputs if isinstance(x, Value)), None) if op in _BESIDE_NUMBERS else None
        if beside is not None:
            inputs = tuple(beside._operand(x, op) for x in inputs)
        outputs = current().apply_all(op, inputs, name, **attrs)
        return outputs[0] if single else tuple(outputs)

    function.__name__ = function.__qualname__ = op
    function.__doc__ = _docstring(record)
    return function


def __getattr__(name: str) -> Any:
    missing_from(__name__)(name)


__all__ = []
for _record in _hetu.operator_records():
    globals()[_record["name"]] = _function(_record)
    __all__.append(_record["name"])

"""Plans without a model: generate, read, verify, simulate, render.

    plan = hetu.schedule.generate("zb-h1", stages=4, micro_batches=8)
    hetu.schedule.verify(plan, send_slots=1)
    hetu.schedule.simulate(plan, forward=10, backward=22, latency=0.3)["bubble_fraction"]
    open("plan.svg", "w").write(hetu.schedule.render(plan, format="svg"))

Keyword arguments are the options of `hetu schedule`, with underscores (docs/reference.md). To define your own plan, write a
function of sizes that returns a row of action strings per worker:

    def mine(stages, micro_batches):
        micros = range(micro_batches)
        return [[f"{s}F{m}" for m in micros] + [f"{s}B{m}" for m in micros] for s in range(stages)]

    hetu.schedule.generate(mine, stages=4, micro_batches=8)
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from hetu import _hetu
from hetu.names import missing_from
from hetu.options import in_keywords, keywords_of_flags
from hetu.place import check_takes, placed

# Has the properties method, stages, micro_batches, chunks, steps, rows, placements, and the methods csv() and
# json().
Schedule: TypeAlias = _hetu.Schedule
Rows = Sequence[Sequence[str]]


def _words(text: str) -> str:
    """Converts a message about options to Python's keywords, which are the fields of the tables."""
    return in_keywords(text, keywords_of_flags("choose", "plan", "planner"), "`hetu schedule --help`")


def methods() -> list[dict[str, Any]]:
    """Returns every method: name, aliases, doc, options, and the rules for its numbers of stages and micro-batches."""
    return list(_hetu.method_records())


@placed(_words)
def from_rows(rows: Rows, **options: Any) -> Schedule:
    """Returns a plan from action strings such as 2F0, 2B0, 2I0, 2W0: a row per worker, in order of execution."""
    return rows_named(rows, "rows", **options)


def rows_named(rows: Rows, name: str, **options: Any) -> Schedule:
    """Returns a plan from action strings, which reports, traces and errors call `name`."""
    return _hetu.plan_from_text(_csv(rows), name, options)


def _csv(rows: Rows) -> str:
    return "".join(",".join(row) + "\n" for row in rows)


@placed(_words)
def generate(method: str | Callable[..., Rows | Schedule], **options: Any) -> Schedule:
    """Returns the plan of a method, or of a function that takes stages and micro_batches and returns rows or a plan."""
    return _by_function(method, options) if callable(method) else _hetu.plan(method, options)


def _by_function(function: Callable[..., Rows | Schedule], options: dict[str, Any], name: str = "") -> Schedule:
    """Returns the plan of a user's function, which reports call `name` or, without one, by the function's own name."""
    for size in ("stages", "micro_batches"):
        if size not in options:
            raise ValueError(f"a plan from a function needs {size}=")
    made = _called(function, options["stages"], options["micro_batches"])
    return made if isinstance(made, _hetu.Schedule) else rows_named(made, name or name_of(function), **options)


def name_of(function: Callable[..., Any]) -> str:
    """Returns the name of a user's function as `hetu simulate` takes it: module:function. A script counts as a module."""
    module = getattr(function, "__module__", None) or ""
    if module == "__main__":
        script = getattr(sys.modules["__main__"], "__file__", None)
        module = os.path.splitext(os.path.basename(script))[0] if script else module
    return f"{module}:{getattr(function, '__qualname__', type(function).__name__)}"


def _called(function: Callable[..., Rows | Schedule], stages: int, micro_batches: int) -> Rows | Schedule:
    check_takes("pipeline: the function", function, "stages", "micro_batches")
    made = function(stages, micro_batches)
    if isinstance(made, _hetu.Schedule):
        return made
    if not isinstance(made, Sequence) or not all(isinstance(row, Sequence) for row in made):
        raise ValueError(f"pipeline: the function returned {made!r}; expected a list of actions, such as '0F0', for each "
                         "worker")
    return made


def text_of(function: Callable[..., Rows | Schedule], stages: int, micro_batches: int) -> str:
    """Returns the plan of a user's function as the text of a file: CSV if it returns rows, and JSON if it returns a plan."""
    made = _called(function, stages, micro_batches)
    return made.json() if isinstance(made, _hetu.Schedule) else _csv(made)


@placed(_words)
def named(pipeline: str | os.PathLike[str] | Callable[..., Rows | Schedule], **options: Any) -> Schedule:
    """Returns the plan that a `pipeline=` argument names: a method, a CSV or JSON file, module:function, or a function of
    sizes that returns rows or a plan. The options are those of `hetu schedule`. `stages` and `micro_batches` are required
    except for a file."""
    if isinstance(pipeline, os.PathLike) or (isinstance(pipeline, str) and is_file(pipeline)):
        return read(pipeline, **options)
    if isinstance(pipeline, str) and is_function(pipeline):
        return _by_function(function_named(pipeline), options, pipeline)
    return generate(pipeline, **options)


@placed(_words)
def choose(**options: Any) -> dict[str, Any]:
    """Returns the JSON result of `hetu choose` with these options: `ranked`, the fastest method first, and `refused`.
    Options with several values, such as micro_batches or methods, take sequences. An entry of methods may be
    module:function."""
    methods = options.get("methods") or ()
    own = {name: function_named(name) for name in ([methods] if isinstance(methods, str) else methods) if is_function(name)}
    ranking: dict[str, Any] = json.loads(_hetu.choose(
        options, lambda name, stages, micro_batches: text_of(own[name], stages, micro_batches)))
    return ranking


@placed(_words)
def plan(**options: Any) -> dict[str, Any]:
    """Returns the JSON result of `hetu plan` with these options: `plan` (None if nothing fits the workers' memory), the
    certified `bound` and `gap`, and the verdict of each of `configurations`. Options with several values, such as methods or
    micro_batch_sizes, take sequences. With explain=True the result also has `explanation`: times of each worker, messages
    of each link, and plans for other machines."""
    answer: dict[str, Any] = json.loads(_hetu.plan(options))
    return answer


@placed(_words)
def ranked(**options: Any) -> list[dict[str, Any]]:
    """Returns the ranking of `choose` as options of a training: method, chunks, pairs, concat, with_recompute. Throws
    ValueError, with the reasons, if no method is possible."""
    ranking = choose(**options)
    if not ranking["ranked"]:
        reasons = sorted({one["why"] for one in ranking["refused"]})
        raise ValueError(f"pipeline choose: no method is possible: {'; '.join(reasons[:3])}")
    known = {method["name"]: method["options"] for method in methods()}
    return [{"method": one["method"], "with_recompute": one["recompute"],
             **{name: one[name] for name in ("chunks", "pairs", "concat") if name in known[one["method"]]}}
            for one in ranking["ranked"]]


def is_method(pipeline: Any) -> bool:
    """Returns true if a `pipeline=` argument is the name of a method."""
    return any(pipeline == m["name"] or pipeline in m["aliases"] for m in methods())


def goes_by_costs(pipeline: Any) -> bool:
    """Returns true if a `pipeline=` argument is the name of a method whose order depends on costs."""
    return any(pipeline == m["name"] and m["by_costs"] for m in methods())


def is_file(pipeline: str) -> bool:
    """Returns true if a `pipeline=` argument is a file of a plan."""
    return pipeline.endswith((".csv", ".json"))


def is_function(pipeline: str) -> bool:
    """Returns true if a `pipeline=` argument has the form module:function."""
    return ":" in pipeline


def function_named(name: str) -> Callable[..., Rows | Schedule]:
    """Returns the function of `module:function`. Modules in the working folder are found too."""
    module, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"pipeline {name}: {error}; expected module:function, FILE.csv or a method's name") from None
    if not callable(found):
        raise ValueError(f"pipeline {name}: {attribute} is not a function but {type(found).__name__}")
    function: Callable[..., Rows | Schedule] = found
    return function


@placed(_words)
def read(path: str | os.PathLike[str], **options: Any) -> Schedule:
    """Reads the plan in a CSV or JSON file, in Hetu's format or in that of torch.distributed.pipelining."""
    return _hetu.plan(os.path.join(os.curdir, os.fspath(path)), options)


def _checked(plan: Any) -> Schedule:
    """Returns `plan`. Throws ValueError if it is not a plan."""
    if not isinstance(plan, _hetu.Schedule):
        raise ValueError(f"expected a plan, such as hetu.schedule.generate returns, got {plan!r}")
    return plan


@placed(_words)
def lower(plan: Schedule, **options: Any) -> Schedule:
    """Returns the plan with messages, reductions and updates added."""
    return _hetu.lowered_plan(_checked(plan), options)


@placed(_words)
def verify(plan: Schedule, **options: Any) -> dict[str, Any]:
    """Proves a plan correct. Returns the peak activations per worker and the weight versions per placement. Throws
    ValueError, which names the first error, for an incorrect plan."""
    return dict(_hetu.verify_plan(_checked(plan), options))


@placed(_words)
def simulate(plan: Schedule, events: bool = False, **options: Any) -> dict[str, Any]:
    """Returns the figures of `hetu simulate --format json`. With events=True, the entry `events` holds events in the format
    of a run's trace."""
    text, rows = _hetu.simulate_plan(_checked(plan), options, events)
    figures: dict[str, Any] = json.loads(text)
    if events:
        figures["events"] = list(rows)
    return figures


@placed(_words)
def render(plan: Schedule, format: str = "grid", **options: Any) -> Any:
    """Draws the plan over time: grid, svg, html, pdf or png (as bytes), or trace for Perfetto. For the plan's own files,
    use its methods csv() and json()."""
    if format in ("csv", "json"):
        raise ValueError(f"render only draws; for {format}, use plan.{format}()")
    if format == "torch":
        raise ValueError("render only draws; for the plan as PyTorch executes it, use lower(plan).torch_csv()")
    return _hetu.render_plan(_checked(plan), {"format": format, **options})


__all__ = ["Schedule", "from_rows", "generate", "lower", "methods", "named", "read", "render", "simulate", "verify"]

globals()["__getattr__"] = missing_from(__name__)  # assigned, not defined: otherwise mypy would accept any name

"""Pipeline-parallel training. The compiled part is hetu._hetu.

The names below load on first use, so that `heturun` and other tools can use parts of the package without the rest.
"""

from __future__ import annotations

import _imp
import importlib
import os
import sys

TYPE_CHECKING = False  # avoids importing typing and pkgutil.extend_path, which takes as long as all work of a guard
if TYPE_CHECKING:
    from typing import Any

# In a source tree the compiled module is in the build folder. It is found through PYTHONPATH, or next to the
# sources.
for _place in (os.path.join(entry, "hetu") for entry in sys.path):
    if _place not in __path__ and os.path.isdir(_place):
        __path__.append(_place)
__path__.append(os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "build", "python", "hetu"))


def _check_compiled() -> None:
    """Throws ImportError if the compiled part doesn't exist for this Python. Without this check, only the first use of a
    name would fail. The guards of heturun run isolated (python3 -I), without PYTHONPATH, and need no compiled part."""
    names = [f"_hetu{suffix}" for suffix in _imp.extension_suffixes()]
    if sys.flags.isolated or any(os.path.exists(os.path.join(place, name)) for place in __path__ for name in names):
        return
    others = [name for place in __path__ if os.path.isdir(place) for name in os.listdir(place) if name.startswith("_hetu.")]
    found = f"found {', '.join(others)}, which is for another Python" if others else "nothing is compiled"
    raise ImportError(f"hetu: no {names[0]} in {', '.join(map(os.path.normpath, __path__))}: {found}. Build it with "
                      "`./run test`, or with `cmake --build build --target tools`, for this Python")


_check_compiled()
_FROM = {
    "Executor": "job.executor", "Step": "job.step", "close": "process.leave",
    "BATCH": "graph", "Value": "graph", "cut": "graph", "new_graph": "graph", "parameter": "graph",
    "buffer": "graph", "placeholder": "graph", "scope": "graph",
    "Predictor": "predictor", "load": "predictor", "save": "predictor",
    "concat": "functions", "constant": "functions", "group_norm": "functions", "instance_norm": "functions",
    "gru": "recurrent", "lstm": "recurrent", "one_hot": "functions", "rms_norm": "functions",
    "load_weights": "weights", "stack": "functions", "step_mean": "functions", "where": "functions",
    "one_line_errors": "process.errors", "parse_bytes": "process.errors", "job_info": "job_grid",
    "summary": "overview", "Trace": "notebook",
}
_MODULES = {name: name for name in ("averaging", "data", "devices", "graph", "init", "lr", "metrics", "models", "nn", "ops",
                                    "optim", "ps", "schedule", "text")}
_MODULES |= {"hold": "process.hold", "training": "job.training", "hooks": "job.hooks"}
__all__ = [*_FROM, *(name for name in _MODULES if name != "hold")]  # importing hold changes the handling of signals


def __getattr__(name: str) -> Any:
    if name == "_hetu":  # `from hetu import _hetu` calls this function first
        from hetu import openmp_spin

        with openmp_spin.while_loading():
            return importlib.import_module("hetu._hetu")
    if name == "__version__":
        return __getattr__("_hetu").__version__
    if name in _MODULES:
        return importlib.import_module(f"hetu.{_MODULES[name]}")
    if name in _FROM:
        return getattr(importlib.import_module(f"hetu.{_FROM[name]}"), name)
    importlib.import_module("hetu.names").missing_from("hetu")(name)

"""Sets how long OpenMP's threads spin at the end of a loop before they sleep.

By default, GCC's libgomp spins for 300,000 rounds, several milliseconds. If another process needs a core, even with the
lowest priority, threads spin while the thread that they wait for has no core. In this case a step of ResNet-18 took 2400 ms
instead of 50 ms. With 1000 rounds, about 20 us, it takes 100 ms, and still 50 ms on an idle machine. The library reads its
environment only once, when it is loaded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager

ROUNDS = "1000"
VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")  # if one of these is set, the user has chosen


def set_short(environ: MutableMapping[str, str]) -> None:
    """Sets a short spin time in an environment for processes, unless it already defines how threads wait."""
    if not any(name in environ for name in VARIABLES):
        environ["GOMP_SPINCOUNT"] = ROUNDS


@contextmanager
def while_loading() -> Iterator[None]:
    """Sets a short spin time for libraries that this process loads inside the `with` block. Afterwards the environment is
    unchanged, because PyTorch has its own OpenMP library."""
    before = os.environ.get("GOMP_SPINCOUNT")
    set_short(os.environ)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("GOMP_SPINCOUNT", None)

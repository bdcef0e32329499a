"""How long OpenMP's threads spin at the end of a loop before they sleep.

GCC's libgomp lets them spin for 300,000 rounds, several milliseconds. Where anything else wants a core, even at the lowest
priority, threads then spin while the one that they wait for has no core: a step of ResNet-18 of 50 ms took 2400. After 1000
rounds, some 20 us, it takes 100, and still 50 where nothing else runs. The library reads its environment once, when it is
loaded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager

ROUNDS = "1000"
TOLD = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")  # whoever sets one of these has chosen


def briefly(environ: MutableMapping[str, str]) -> None:
    """Has the threads of processes with this environment spin briefly, unless it says how they are to wait."""
    if not any(name in environ for name in TOLD):
        environ["GOMP_SPINCOUNT"] = ROUNDS


@contextmanager
def while_loading() -> Iterator[None]:
    """The same of libraries loaded meanwhile by this process, whose environment stays what it was: PyTorch has an OpenMP
    library of its own."""
    before = os.environ.get("GOMP_SPINCOUNT")
    briefly(os.environ)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("GOMP_SPINCOUNT", None)

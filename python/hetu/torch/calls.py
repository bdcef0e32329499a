"""Exchanges between workers, labelled with the call that they belong to.

A call that needs all workers, such as step() or save(), begins with an exchange. Each worker adds the function that its
script has called, and the line of the call. If they differ, all workers raise the same error. Without this, they would
misread each other's data or wait for a message that never arrives.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

import torch

import hetu
from hetu import _hetu

_OURS = (*(os.path.dirname(os.path.abspath(str(module.__file__))) + os.sep for module in (hetu, torch)), contextlib.__file__)


class Exchanges:
    """The exchanges of one worker. `crew` holds the workers of its steps: all workers, or those of one pipeline if
    pipelines average."""

    def __init__(self, transport: Any, crew: Sequence[int]) -> None:
        self.transport, self.crew = transport, list(crew)
        self.call: tuple[str, str] | None = None  # set if the stack doesn't show the call
        self.counts: dict[tuple[int, ...], int] = {}  # exchanges so far, by group of workers

    def exchange(self, mine: bytes, workers: Sequence[int] | None = None) -> list[bytes]:
        """Returns the bytes that each of these workers passes, in their order; without a list, those of all workers. Throws
        RuntimeError on all of them if their scripts have called different functions."""
        group = list(workers or range(self.transport.workers))
        call, where = self.call or _call()
        head = json.dumps([call, where]).encode() + b"\n"
        what = f"the call of {call}(), here in {where},"
        if len(group) > len(self.crew):  # other members of the crew may be in a call of the crew only
            self._check(self._gather(head, self.crew, what), self.crew)
        texts = self._gather(head + mine, group, what)
        self._check(texts, group)
        return [text.partition(b"\n")[2] for text in texts]

    def _gather(self, mine: bytes, group: list[int], what: str) -> list[bytes]:
        return list(_hetu.exchange_bytes(self.transport, group, mine, self.next_number(group), what))

    def next_number(self, group: Sequence[int]) -> int:
        """Returns the number of the next exchange between these workers, which is the same on each of them. Each group has
        its own counter, because a worker takes part in exchanges of several groups."""
        number = self.counts[tuple(group)] = self.counts.get(tuple(group), 0) + 1
        return number

    def _check(self, texts: Sequence[bytes], group: Sequence[int]) -> None:
        calls = [json.loads(text.partition(b"\n")[0]) for text in texts]
        for worker, (call, where) in zip(group, calls, strict=True):
            if call != calls[0][0]:
                raise RuntimeError(f"worker {group[0]} called {calls[0][0]}() in {calls[0][1]}, and worker {worker} "
                                   f"called {call}() in {where}: all workers must make the same calls in the same order")


def _call() -> tuple[str, str]:
    """Returns the function of this package that the script has called, and the script's file and line. Frames of PyTorch,
    such as those of an optimizer or a GradScaler, count as the package's."""
    outside: FrameType | None = sys._getframe(1)
    inside = sys._getframe()
    while outside is not None and outside.f_code.co_filename.startswith(_OURS):
        inside, outside = outside, outside.f_back
    owner = inside.f_locals.get("self")
    function = inside.f_locals.get("func") if inside.f_code.co_name == "wrapper" else None  # PyTorch's wrapper of step()
    name = getattr(function, "__name__", inside.f_code.co_name)
    name = name if owner is None else f"{type(owner).__name__}.{name}"
    return name, f"{os.path.basename(outside.f_code.co_filename)}, line {outside.f_lineno}" if outside else "a thread"

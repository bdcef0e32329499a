"""A script's part in a round of `heturun --elastic`: the layout that heturun has chosen, and notes to heturun."""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple, NoReturn

from hetu import progress

LAYOUT = "HETU_ELASTIC"


class Layout(NamedTuple):
    """A round's pipelines, stages, and micro-batches of each pipeline."""

    pipelines: int
    stages: int
    micro_batches: int

    def __str__(self) -> str:
        return f"{self.pipelines} x {self.stages} x {self.micro_batches}"


def layout() -> Layout | None:
    """Returns the layout of this round, or None if the job was started without --layout. Throws ValueError for another
    text."""
    text = os.environ.get(LAYOUT, "")
    if not text:
        return None
    found = re.fullmatch(r"([1-9]\d{0,3})x([1-9]\d{0,3})x([1-9]\d{0,8})", text)
    if not found:
        raise ValueError(f"{LAYOUT}={text}: expected pipelines x stages x micro-batches, such as 2x2x4; heturun sets it")
    return Layout(*map(int, found.groups()))


def note(**what: Any) -> None:
    """Sends a note to heturun --elastic; see launch/elastic_trainings.py."""
    progress.tell({"elastic": what})


def refuse(text: str) -> NoReturn:
    """Throws ValueError, and informs heturun that another round would fail, too."""
    note(refused=text)
    raise ValueError(text)


def refuse_graphs() -> None:
    """Throws ValueError if the job was started with --layout, which is for hetu.torch."""
    if layout():
        refuse("heturun --layout is for scripts of hetu.torch; a graph model takes --devices, --batch-size and "
               "--micro-batches in the command, and --elastic without --layout")

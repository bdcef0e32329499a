"""The page of published figures: its text, the figures that agree and differ, and their simulations."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from hetu import schedule

SIZES = ("stages", "micro_batches", "chunks", "pairs", "concat", "pair_semantics", "runtime_rule", "steps", "memory_limit")


class Page:
    """The text, and the count of figures that agree and differ."""

    def __init__(self) -> None:
        self.text = ""
        self.figures = 0
        self.different: list[str] = []

    def add(self, *lines: str) -> None:
        self.text += "\n".join(lines) + "\n\n"

    def section(self, title: str, *words: str) -> None:
        self.add(f"## {title}")
        if words:
            self.prose(*words)

    def prose(self, *words: str) -> None:
        """Adds a paragraph, in lines of at most 125 columns."""
        self.add(*textwrap.wrap(" ".join(words), 125, break_long_words=False, break_on_hyphens=False))

    def item(self, words: str) -> None:
        """Adds an item of a list."""
        self.text = self.text.removesuffix("\n") if self.text.rsplit("\n\n", 2)[-2].startswith("- ") else self.text
        self.add(*textwrap.wrap("- " + words, 125, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False))

    def table(self, head: list[str], rows: list[list[str]]) -> None:
        lines = [head, ["---"] * len(head), *rows]
        self.add(*("| " + " | ".join(line) + " |" for line in lines))

    def cell(self, name: str, known: Any, found: Any, digits: int | None = None) -> str:
        """Returns `known / found`. Numbers agree to the printed digits, or exactly where no digits are given."""
        self.figures += 1
        if isinstance(found, str):
            equal, text = known == found, f"`{known}` / `{found}`"
        else:
            form = ".12g" if digits is None else f".{digits}f"
            equal = abs(found - known) <= 1e-9 + (0 if digits is None else 0.5 * 10**-digits)
            text = f"{known:{form}} / {known if equal else found:{form}}"
            if not equal:
                text = f"**{text} ({found - known:+{form}})**"
        if not equal:
            self.different.append(name)
        return text

    def bound(self, name: str, known: float, found: float) -> str:
        """Returns the text `at most known / found`."""
        self.figures += 1
        if found > known + 1e-9:
            self.different.append(name)
            return f"**{known:g} / {found:g} ({found - known:+g})**"
        return f"{known:g} / {found:g}"


def simulated(method: str, **options: Any) -> dict[str, Any]:
    """Returns the figures of `hetu simulate`, with the events."""
    sizes = {name: value for name, value in options.items() if name in SIZES}
    costs = {name: value for name, value in options.items() if name not in SIZES}
    chooses = method in ("zb-1p", "zb-2p", "auto") or "runtime_rule" in sizes
    plan = schedule.generate(method, **sizes, **(costs if chooses else {}))
    return schedule.simulate(plan, events=True, **costs)


def command(method: str, **options: Any) -> str:
    words = [f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}") for name, value in options.items()]
    return f"`hetu simulate {method} {' '.join(words)}`"


def peak(run: dict[str, Any]) -> float:
    return float(max(worker["peak_activations"] for worker in run["workers"]))


def worst_of(page: Page, title: str, pairs: Sequence[tuple[float, Any]]) -> list[str]:
    """Returns the row of a closed form: the number of plans, and the largest difference of (published, found)."""
    page.figures += len(pairs)
    worst = max(abs(known - found) for known, found in pairs)
    if worst > 1e-9:
        page.different.append(title)
    return [title, str(len(pairs)), "none" if worst <= 1e-9 else f"**{worst:g}**"]

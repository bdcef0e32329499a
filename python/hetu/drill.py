"""The grammar of HETU_FAULT: faults that happen on purpose in a job of heturun --elastic. It uses only the standard library,
so that the launcher can import it. hetu/process/faults.py makes the faults happen.

    HETU_FAULT="worker=2,step=5,kind=kill,round=1;worker=0,at=save,kind=enospc"

A fault has a worker, a moment and a kind. The moment is `step=N`, just before the worker takes step N, or `at=PLACE`: the
first time in a round that the worker starts, loads, saves or evaluates."""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from typing import NamedTuple

VARIABLE = "HETU_FAULT"
ROUND_VARIABLE = "FAULTS_OF_ROUND"  # the same text with the faults of one round; heturun sets it for the workers
KINDS = ("kill", "stop", "hang", "delay", "enospc")
PLACES = ("start", "load", "save", "evaluate")
FIELDS = ("worker", "step", "at", "kind", "round", "seconds")
MOST_SECONDS = 3600.0
EXAMPLE = "worker=2,step=5,kind=kill"

NOT_ELASTIC = f"{VARIABLE} is for jobs of heturun --elastic, which survive such faults; add --elastic, or unset {VARIABLE}"


class FaultError(ValueError):
    """A wrong value of HETU_FAULT."""


class Fault(NamedTuple):
    """One fault. `step` or `at` is its moment. `round`: the only round in which it happens, from 1; 0: every round.
    `seconds`: the length of a delay, or the time from the moment to a kill or stop."""

    worker: int
    kind: str
    step: int | None = None
    at: str = ""
    round: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        moment = f"at={self.at}" if self.at else f"step={self.step}"
        return (f"worker={self.worker},{moment},kind={self.kind}" + (f",round={self.round}" if self.round else "")
                + (f",seconds={self.seconds:g}" if self.seconds else ""))


def _refuse(text: str, expected: str) -> FaultError:
    return FaultError(f"{VARIABLE}: got '{text[:80]}'; expected {expected}, such as '{EXAMPLE}'; correct or unset "
                      f"{VARIABLE}")


def _number(fields: dict[str, str], name: str, least: int, text: str) -> int:
    value = fields[name]
    if not re.fullmatch(r"[0-9]{1,9}", value) or int(value) < least:
        raise _refuse(text, f"{name}=N with a whole number from {least}, not {name}={value[:20]}")
    return int(value)


def _one_of(fields: dict[str, str], name: str, known: tuple[str, ...], text: str) -> str:
    if fields[name] not in known:
        raise _refuse(text, f"{name}={'|'.join(known)}, not {name}={fields[name][:20]}")
    return fields[name]


def _seconds(fields: dict[str, str], kind: str, text: str) -> float:
    if "seconds" not in fields:
        if kind == "delay":
            raise _refuse(text, "seconds=S for a delay")
        return 0.0
    value = fields["seconds"]
    if kind in ("hang", "enospc"):
        raise _refuse(text, f"no seconds= for kind={kind}, which begins at its moment")
    if not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,6})?", value) or not 0 < float(value) <= MOST_SECONDS:
        raise _refuse(text, f"seconds=S above 0 and at most {MOST_SECONDS:g}, not seconds={value[:20]}")
    return float(value)


def _fault(text: str) -> Fault:
    fields: dict[str, str] = {}
    for word in text.split(","):
        name, equals, value = (part.strip() for part in word.partition("="))
        if name not in FIELDS or not equals or name in fields:
            raise _refuse(text, f"each of {', '.join(FIELDS)} at most once, as NAME=VALUE, not '{word.strip()[:30]}'")
        fields[name] = value
    for name in ("worker", "kind"):
        if name not in fields:
            raise _refuse(text, f"{name}=")
    kind = _one_of(fields, "kind", KINDS, text)
    if kind == "enospc" and fields.keys().isdisjoint({"step", "at"}):
        fields["at"] = "save"
    if ("step" in fields) == ("at" in fields):
        raise _refuse(text, "one moment: step=N or at=" + "|".join(PLACES))
    at = _one_of(fields, "at", PLACES, text) if "at" in fields else ""
    if kind == "enospc" and at != "save":
        raise _refuse(text, "at=save for kind=enospc, which makes a save fail")
    step = _number(fields, "step", 0, text) if "step" in fields else None
    number = _number(fields, "round", 1, text) if "round" in fields else 0
    return Fault(_number(fields, "worker", 0, text), kind, step, at, number, _seconds(fields, kind, text))


def parse(text: str) -> list[Fault]:
    """Returns the faults of a value of HETU_FAULT, which are separated by semicolons. Throws FaultError."""
    return [_fault(part) for part in text.split(";") if part.strip()]


def take(environ: MutableMapping[str, str]) -> list[Fault]:
    """Returns the faults of HETU_FAULT, and removes the variable, so that only the rounds have it. Throws FaultError."""
    environ.pop(ROUND_VARIABLE, None)  # of a job that encloses this one
    return parse(environ.pop(VARIABLE, ""))


def text_of(faults: list[Fault]) -> str:
    """Returns the text that parse() reads."""
    return ";".join(map(str, faults))


def of_round(faults: list[Fault], number: int, keep: bool = False) -> list[Fault]:
    """Returns the faults of a round, without its number unless `keep` is true: the workers don't know the round."""
    found = [fault for fault in faults if fault.round in (0, number)]
    return found if keep else [fault._replace(round=0) for fault in found]

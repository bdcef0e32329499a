"""The log of a training: a record per step, as JSON lines or CSV. Each step occurs once, however often the training is
resumed."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from pathlib import Path
from typing import Any, TextIO

from hetu.job.step import Step


def _step_of(line: bytes, is_csv: bool) -> int | None:
    """Returns the step of a record, or None for the header line of a CSV file."""
    try:
        if not is_csv:
            return int(json.loads(line)["step"])
        first = line.split(b",", 1)[0]
        return None if first == b"step" else int(first)
    except (ValueError, TypeError, KeyError):
        raise ValueError(f"{line[:60]!r} is not the record of a step") from None


def bytes_before(log: bytes, step: int, is_csv: bool = False) -> int:
    """Returns the length of the part of a log that a run which continues at `step` keeps. The part ends before that step in
    the last stretch of ascending steps, and before an incomplete last line. Throws ValueError for a line that is not a
    record."""
    end, above = log.rfind(b"\n") + 1, None
    while end > 0:
        start = log.rfind(b"\n", 0, end - 1) + 1
        there = _step_of(log[start:end], is_csv)
        if there is None or there < step or (above is not None and there > above):
            break
        end, above = start, there
    return end


def row_of(step: Step) -> dict[str, Any]:
    """Returns the contents of a record. A number that JSON lacks (NaN, infinity) becomes None: null in JSON, an empty field
    in CSV."""
    record = {
        **({"meaningless": step.meaningless} if step.meaningless else {}),
        "step": step.index, **step.scalars, "samples_per_s": round(step.samples_per_s, 2), "seconds": round(step.seconds, 6),
        "learning_rate": step.learning_rate, "gradient_norm": None if step.skipped else step.gradient_norm,
        **({} if step.loss_scale is None else {"loss_scale": step.loss_scale, "skipped": step.skipped}),
    }
    return {name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in record.items()}


class Records:
    """Writes a record per step to a file, in whole lines. If the name ends in .csv, it is CSV with the names in the first
    line; otherwise each line is a JSON object. A run that continues a file (`append`) removes the steps that it does again.
    Throws OSError and ValueError with the file's name, prefixed by `called`."""

    def __init__(self, path: str | None, append: bool, called: str = "--log ") -> None:
        self.file: TextIO | None = open(path, "a" if append else "w", buffering=1) if path else None
        self.is_csv = str(path).endswith(".csv")
        self.called = called
        self._goes_on = append and path is not None and Path(path).is_file()
        self._names: list[str] = []  # columns of the CSV file

    def _cut(self, step: int) -> None:
        assert self.file is not None
        path = Path(self.file.name)
        try:
            os.truncate(path, bytes_before(path.read_bytes(), step, self.is_csv))
        except ValueError as error:
            raise ValueError(f"{self.called}{path}: {error}; give the file that the resumed run wrote, or a new one"
                             ) from None
        self._goes_on = False

    def _line(self, record: dict[str, Any]) -> str:
        if not self.is_csv:
            return json.dumps(record, allow_nan=False) + "\n"
        assert self.file is not None
        names, text = list(record), ""
        if not self._names:
            with open(self.file.name, newline="") as there:
                self._names = next(csv.reader(there), [])
        if not self._names:
            self._names, text = names, _row(names)
        if self._names != names:
            raise ValueError(f"{self.called}{self.file.name}: its columns are {', '.join(self._names)}, but this run has "
                             f"{', '.join(names)}; give a new file")
        return text + _row(list(record.values()))

    def write(self, step: Step) -> None:
        if self._goes_on:
            self._cut(step.index)
        if self.file:
            try:
                self.file.write(self._line(row_of(step)))
            except OSError as error:
                raise OSError(f"{self.file.name}: {error.strerror}") from None

    def close(self) -> None:
        if self.file:
            try:
                self.file.close()
            except OSError as error:
                raise OSError(f"{self.file.name}: {error.strerror}") from None


def _row(values: list[object] | list[str] | list[float]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(values)
    return out.getvalue()

"""Writes scalars as TensorBoard event files: records of a length, a protocol-buffer Event and their CRC-32C checksums, in
the TFRecord format.

The format is implemented here instead of using tensorboardX. It has only two message types, which is less than a dependency
on protobuf. A full disk also raises an error in the step that meets it, instead of in a background thread.

There are two axes. `Step/…` tags hold points of single steps, at the number of steps done. All other tags hold points of
epochs, at the number of the epoch.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hetu import _hetu


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _bytes(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _event(step: int, *parts: bytes) -> bytes:
    """Returns an encoded Event: wall_time = 1 (double), step = 2 (int64), then file_version = 3 or summary = 5."""
    return b"\x09" + struct.pack("<d", time.time()) + b"\x10" + _varint(step) + b"".join(parts)


def _checksum(data: bytes) -> bytes:
    """Returns TFRecord's masked CRC. The rotation and offset keep a checksum of data with checksums from degenerating."""
    crc = _hetu.crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields (offset, event) of complete records, up to the first one that is truncated or damaged."""
    at = 0
    while at + 16 <= len(data):
        length = int(struct.unpack_from("<Q", data, at)[0])
        body = data[at + 12:at + 12 + length]
        whole = len(body) == length and at + 16 + length <= len(data)
        if not whole or data[at + 12 + length:at + 16 + length] != _checksum(body):
            return
        yield at, body
        at += 16 + length


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Returns a varint, and the offset behind it."""
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            return value, at


def _step_and_tag(event: bytes) -> tuple[int, str]:
    """Returns step and first tag of an event that `_event` made. The tag is "" if the event has no scalars."""
    step, at = _number(event, 10)
    if event[at] != 5 << 3 | 2:
        return step, ""
    for _ in range(3):  # into the summary, its first value, and this value's tag
        length, at = _number(event, at + 1)
    return step, event[at:at + length].decode()


def take_back(folder: str | Path, stale: Callable[[int, str], bool]) -> None:
    """Truncates the event files of a folder before the first record for which stale(step, tag) is true. A run that
    continues from a checkpoint writes everything after the checkpoint again. Records are in the order of the run, so all
    later records are stale too. A record that a kill has truncated is removed as well."""
    for path in sorted(Path(folder).glob("events.out.tfevents.*")):
        data, end = path.read_bytes(), 0
        for at, event in _records(data):
            step, tag = _step_and_tag(event)
            if tag and stale(step, tag):
                break
            end = at + 16 + len(event)
        if end < len(data):
            os.truncate(path, end)


class Events:
    """An event file in `folder`, which is created if necessary. Data are written when `add` returns. Throws OSError with
    the file's name."""

    def __init__(self, folder: str | Path) -> None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time())}.{os.uname().nodename}.{os.getpid()}"
        self.path = Path(folder) / name
        self._file = open(self.path, "ab", buffering=0)
        self._record(_event(0, _bytes(3, b"brain.Event:2")))

    def add(self, step: int, scalars: dict[str, float]) -> None:
        """Writes the scalars of one step, by tag. Encoding: Summary.value = 1, with tag = 1 and simple_value = 2 (float)."""
        values = [_bytes(1, _bytes(1, tag.encode()) + b"\x15" + struct.pack("<f", v)) for tag, v in scalars.items()]
        self._record(_event(step, _bytes(5, b"".join(values))))

    def _record(self, event: bytes) -> None:
        length = struct.pack("<Q", len(event))
        data = length + _checksum(length) + event + _checksum(event)
        try:
            while data:
                data = data[self._file.write(data):]
        except OSError as error:
            raise OSError(f"{self.path}: {error.strerror}") from None

    def close(self) -> None:
        self._file.close()


class Course:
    """Writes a point of a training after every `every` steps (0: never) and after the last of `total` steps. A point has
    the loss, rate and gradient norm of that step, and the samples per second since the point before."""

    def __init__(self, events: Events, every: int, total: int) -> None:
        self._events, self._every, self._total = events, every, total
        self._last = self._samples = 0
        self._seconds = 0.0

    def add(self, step: Any) -> None:
        """Adds one step, a hetu.job.step.Step."""
        self._samples += step.samples
        self._seconds += step.seconds
        done = step.index + 1
        if not self._every or done <= self._last or (done % self._every and done != self._total):
            return
        rate = self._samples / self._seconds if self._seconds > 0 else 0.0
        self._events.add(done, {"Step/loss": step.loss, "Step/learning_rate": step.learning_rate,
                                "Step/gradient_norm": step.gradient_norm, "Step/samples_per_s": rate,
                                **({"Step/loss_scale": step.loss_scale} if step.loss_scale is not None else {})})
        self._last, self._samples, self._seconds = done, 0, 0.0

"""Scalars as TensorBoard event files: records of a length, a protocol-buffer Event and their CRC-32C, as TFRecord has them.

Written here, not by tensorboardX: two message types are less than protobuf as a dependency, and a full disk is an error of
the step that met it instead of one lost in a background thread.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from pathlib import Path

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
    """Event: wall_time = 1 (double), step = 2 (int64), then file_version = 3 or summary = 5."""
    return b"\x09" + struct.pack("<d", time.time()) + b"\x10" + _varint(step) + b"".join(parts)


def _checksum(data: bytes) -> bytes:
    """TFRecord's: rotated and shifted, so that a checksum of checksums is none."""
    crc = _hetu.crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


class Events:
    """An event file in `folder`, which is made. An `add` is written when it returns. Throws OSError with the file's name."""

    def __init__(self, folder: str | Path) -> None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}"
        self.path = Path(folder) / name
        self._file = open(self.path, "ab", buffering=0)
        self._record(_event(0, _bytes(3, b"brain.Event:2")))

    def add(self, step: int, scalars: dict[str, float]) -> None:
        """The scalars of one step, by tag. Summary: value = 1, of tag = 1 and simple_value = 2 (float)."""
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

"""Event files: every record's length and checksums are right and its scalars come back, read here by the formats of TFRecord
and protocol buffers (and by TensorBoard itself where it is installed); a full disk is named."""

import importlib.util
import pathlib
import resource
import struct
import tempfile
import unittest

from hetu.tensorboard import Events

SCALARS = [(0, {"Train/loss": 6.91, "Train/acc": 0.0}), (1, {"Train/loss": -1e-30}), (300, {"a" * 300: 3.0e38})]


def crc32c(data: bytes) -> int:
    """Bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> int:
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17 & 0xFFFFFFFF) + 0xA282EAD8) & 0xFFFFFFFF


def records(data: bytes) -> list[bytes]:
    out, at = [], 0
    while at < len(data):
        length, checksum = struct.unpack_from("<QI", data, at)
        body = data[at + 12:at + 12 + length]
        assert masked(data[at:at + 8]) == checksum and masked(body) == struct.unpack_from("<I", data, at + 12 + length)[0]
        out.append(body)
        at += 16 + length
    return out


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            return value, at


def fields(data: bytes) -> list[tuple[int, object]]:
    """(number, value) of one protocol-buffer message."""
    out: list[tuple[int, object]] = []
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
            out.append((key >> 3, value))
            continue
        size = {1: 8, 5: 4}.get(key & 7)
        if size is None:
            size, at = varint(data, at)
        raw = data[at:at + size]
        out.append((key >> 3, struct.unpack("<d" if key & 7 == 1 else "<f", raw)[0] if key & 7 != 2 else raw))
        at += size
    return out


class EventFiles(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name) / "runs" / "one"

    def write(self) -> pathlib.Path:
        events = Events(self.folder)
        for step, scalars in SCALARS:
            events.add(step, scalars)
        events.close()
        return events.path

    def test_records_hold_what_was_added(self) -> None:
        first, *rest = records(self.write().read_bytes())
        self.assertEqual(dict(fields(first))[3], b"brain.Event:2")
        for body, (step, scalars) in zip(rest, SCALARS, strict=True):
            event = dict(fields(body))
            self.assertEqual(event[2], step)
            got = {}
            for number, value in fields(event[5]):  # type: ignore[arg-type]
                self.assertEqual(number, 1)
                one = dict(fields(value))  # type: ignore[arg-type]
                got[one[1].decode()] = one[2]  # type: ignore[attr-defined]
            self.assertEqual(got, {k: struct.unpack("<f", struct.pack("<f", v))[0] for k, v in scalars.items()})

    @unittest.skipUnless(importlib.util.find_spec("tensorboard"), "TensorBoard is not installed")
    def test_tensorboard_reads_them(self) -> None:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        self.write()
        read = EventAccumulator(str(self.folder)).Reload()
        self.assertEqual([(e.step, round(e.value, 5)) for e in read.Scalars("Train/loss")], [(0, 6.91), (1, 0.0)])

    def test_a_full_disk_is_named(self) -> None:
        events = Events(self.folder)
        self.addCleanup(events.close)
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_FSIZE, before)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, before[1]))
        with self.assertRaisesRegex(OSError, f"^{events.path}: File too large"):
            for step in range(20):
                events.add(step, {"Train/loss": 1.0})


if __name__ == "__main__":
    unittest.main()

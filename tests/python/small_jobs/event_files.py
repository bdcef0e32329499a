"""Reads the scalars of event files, by the formats of TFRecord and protocol buffers."""

import pathlib
import struct


def crc32c(data: bytes) -> int:
    """Returns the CRC-32C, computed bit by bit."""
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
    """Returns (number, value) of the fields of one protocol-buffer message."""
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


def scalars_of(path: pathlib.Path) -> list[tuple[int, str, float]]:
    """Returns (step, tag, value) of all scalars in a file."""
    out = []
    for body in records(path.read_bytes()):
        event = dict(fields(body))
        for _, value in fields(event.get(5, b"")):  # type: ignore[arg-type]
            one = dict(fields(value))  # type: ignore[arg-type]
            out.append((int(event[2]), one[1].decode(), float(one[2])))  # type: ignore[attr-defined,call-overload]
    return out

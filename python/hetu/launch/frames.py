"""Frames, the messages between heturun (links.py) and the guards of workers (guard.py) over a socket, and lines in them.

A frame is one byte of kind, four bytes of length (big-endian) and the payload.

From guards:
    HELLO       JSON
    STARTED     JSON
    OUT, ERR    whole lines, or a part of a long or unfinished line
    PROGRESS    a JSON object
    TOLD        mpirun ends this worker, and may soon kill the guard
    STOPPED     JSON: a signal has stopped this process, or it runs again
    EXIT        JSON
    HEARTBEAT

From heturun:
    NONCE       16 bytes
    SIGNAL      its number
    HEARTBEAT
"""
import json
import struct

PROTOCOL = 4
HELLO, STARTED, OUT, ERR, PROGRESS, TOLD, STOPPED, EXIT, HEARTBEAT, NONCE, SIGNAL = b"HSOEPTDXBNK"
HEADER = struct.Struct(">BI")
LONGEST_FRAME = 8 << 20
LONGEST_HELLO = 4 << 10  # limit for a peer that has not proved to be a guard
LONGEST_LINE = 1 << 20  # longer lines are split, so that memory stays bounded


def pack(kind, payload=b""):
    """Returns a frame. A payload that is not bytes is sent as JSON."""
    if not isinstance(payload, bytes):
        payload = json.dumps(payload).encode()
    return HEADER.pack(kind, len(payload)) + payload


class Frames:
    """Splits a byte stream into frames of at most `longest` bytes."""

    def __init__(self, longest=LONGEST_FRAME):
        self.longest = longest
        self._data = bytearray()

    def feed(self, data):
        """Yields (kind, payload) of every complete frame. Raises ValueError for a stream of another format."""
        self._data += data
        while len(self._data) >= HEADER.size:
            kind, length = HEADER.unpack_from(self._data)
            if length > self.longest:
                raise ValueError(f"a frame of {length} bytes; at most {self.longest} are allowed")
            if len(self._data) < HEADER.size + length:
                return
            payload = bytes(self._data[HEADER.size:HEADER.size + length])
            del self._data[:HEADER.size + length]
            yield kind, payload


class Lines:
    """Holds back the unfinished last line of a stream. `end` is appended to a line that is split, and to a last line
    without a newline."""

    def __init__(self, end=b"\n"):
        self._end = end
        self._tail = b""

    def feed(self, data):
        """Returns the complete lines, or b"". A line that is too long is returned in parts."""
        data = self._tail + data
        end = data.rfind(b"\n") + 1
        self._tail = data[end:]
        if len(self._tail) > LONGEST_LINE:
            return data[:end] + self.flush()
        return data[:end]

    def flush(self):
        """Returns the unfinished line, or b""."""
        tail, self._tail = self._tail, b""
        return tail + self._end if tail else b""

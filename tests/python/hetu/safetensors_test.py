"""Safetensors files: Hetu's reader accepts no file that the reference implementation refuses, over thousands of damaged
headers. The reference is the package `safetensors`, where it is installed. tests/executor/state/weights_file_test.cpp
has the cases that need no reference."""

import copy
import json
import pathlib
import random
import struct
import tempfile
import unittest

from hetu import _hetu

try:
    import safetensors
except ImportError:
    safetensors = None

SEED, FILES = 11, 6000
SIZES = {"F32": 4, "F16": 2, "BF16": 2, "I64": 8, "U8": 1, "F8_E4M3": 1, "BOOL": 1}
NUMBERS = ["0", "-0", "-1", "1", "1.0", "1e0", "2", "3", "4", "true", "null", '"1"', "[]", "9223372036854775807",
           "9223372036854775808", "18446744073709551616"]


def drawn(source):
    """Returns (header as a dict, bytes of data) of a valid file."""
    header, at = {}, 0
    if source.random() < 0.5:
        header["__metadata__"] = {"format": "pt"}
    rows = []
    for number in range(source.randrange(4)):
        dtype = source.choice(list(SIZES))
        shape = [source.randrange(4) for _ in range(source.randrange(3))]
        size = SIZES[dtype]
        for dim in shape:
            size *= dim
        rows.append((f"t{number}", {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}))
        at += size
    source.shuffle(rows)  # in any order
    header.update(rows)
    return header, at


def damaged(source, header, size):
    """Returns the text of the header, and the number of data bytes, changed in up to two places."""
    header = copy.deepcopy(header)
    tensors = [row for name, row in header.items() if name != "__metadata__"]
    for _ in range(source.randrange(3)):
        kind = source.randrange(6)
        if kind == 0:
            size = max(0, size + source.choice([-1, 1, 4]))
        elif kind == 1 and tensors:
            row = source.choice(tensors)
            row["data_offsets"] = [max(0, offset + source.choice([-2, 0, 1, 4])) for offset in row["data_offsets"]]
        elif kind == 2 and tensors:
            source.choice(tensors)["shape"] = [source.randrange(5) for _ in range(source.randrange(3))]
        elif kind == 3 and tensors:
            row = source.choice(tensors)
            row.pop(source.choice(list(row)))
            tensors = [row for row in tensors if len(row) == 3]
        elif kind == 4 and tensors:
            source.choice(tensors)["dtype"] = source.choice([*SIZES, "f32", "F4", "X"])
        elif kind == 5:
            header["__metadata__"] = source.choice([None, {}, {"a": 1}, [], {"a": "b", "c": "d"}])
    text = json.dumps(header)
    if source.random() < 0.3:  # another digit, in any spelling that JSON allows
        digits = [i for i, c in enumerate(text) if c.isdigit()]
        if digits:
            at = source.choice(digits)
            text = text[:at] + source.choice(NUMBERS) + text[at + 1:]
    if source.random() < 0.1:
        at = source.randrange(len(text))
        text = text[:at] + source.choice(["", ",", "}", " ", "\0", "\\ud800", "\ufeff", "[" * 200]) + text[at:]
    return text.encode(), size


class Reference(unittest.TestCase):
    @unittest.skipIf(safetensors is None, "safetensors is not there: pip install safetensors for the comparison")
    def test_no_file_is_taken_that_the_reference_refuses(self):
        source, taken, refused, stricter = random.Random(SEED), 0, 0, 0
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "w.safetensors")
            for number in range(FILES):
                header, size = drawn(source)
                whole = number % 5 == 0
                text, size = (json.dumps(header).encode(), size) if whole else damaged(source, header, size)
                data = struct.pack("<Q", len(text)) + text + bytes(size)
                path.write_bytes(data)
                try:
                    reference = {name for name, _ in safetensors.deserialize(data)}
                except Exception:  # the package raises a type of its own
                    reference = None
                try:
                    reader = _hetu.WeightReader(str(path))
                    found = {name for name, *_ in reader.entries}
                except OSError:
                    found = None
                with self.subTest(seed=SEED, number=number, header=text[:400]):
                    if found is not None:
                        self.assertEqual(found, reference)
                    if whole:
                        self.assertIsNotNone(found, "a whole file is refused")
                taken += found is not None
                refused += reference is None
                stricter += found is None and reference is not None
        print(f"{FILES} files: {taken} taken, {refused} refused by the reference, {stricter} more here", flush=True)
        self.assertGreater(taken, FILES // 4)
        self.assertGreater(refused, FILES // 4)
        self.assertLess(stricter, FILES // 50)


if __name__ == "__main__":
    unittest.main(verbosity=2)

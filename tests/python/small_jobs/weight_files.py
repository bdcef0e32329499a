"""Writes safetensors files for tests that load weights. HETU is the tool that converts checkpoints."""

import json
import os
import pathlib

import numpy as np

HETU = pathlib.Path(os.environ["HETU_BUILD_DIR"]) / "bin" / "hetu"


def write(path, tensors):
    """Writes a safetensors file of float32 arrays, or of (array, dtype in the file)."""
    header, data = {}, b""
    for name, given in tensors.items():
        array, dtype = given if isinstance(given, tuple) else (np.asarray(given, np.float32), "F32")
        raw = array.tobytes()
        header[name] = {"dtype": dtype, "shape": list(np.shape(array)), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)

"""Images for the fixtures of image tests, and the digest of their pixels."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image


def digest(data: bytes) -> str:
    """Returns the 64-bit FNV-1a hash."""
    out = 0xCBF29CE484222325
    for byte in data:
        out = (out ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{out:016x}"


def drawn(width: int, height: int, seed: int) -> Image.Image:
    """Returns an image of soft colours with some grain: neither flat nor noise."""
    rng = np.random.default_rng(seed)
    soft = Image.fromarray(rng.integers(0, 256, (5, 5, 3), dtype=np.uint8)).resize((width, height), Image.BICUBIC)
    grain = rng.integers(-6, 7, (height, width, 3))
    return Image.fromarray(np.clip(np.asarray(soft).astype(int) + grain, 0, 255).astype(np.uint8))


def encoded(image: Image.Image, form: str, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()

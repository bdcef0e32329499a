"""Writes tests/fixtures/images.json: small images, and the results of OpenCV, Pillow and torchvision for them.

    python3 tests/python/references/make_images_fixture.py        # needs opencv-python-headless, pillow, torchvision

The file holds each image as base64, with three kinds of digests (FNV-1a, 64 bits): of its pixels by cv2.imread, red first;
of the float32 result of torchvision's Resize(256), CenterCrop(224), ToTensor, Normalize; of parts resized by Pillow. It also
holds quantiles of torchvision's RandomResizedCrop, and crops of CIFAR-100's augmentations."""

from __future__ import annotations

import base64
import json
import math
from pathlib import Path

import cv2
import numpy as np
import torch
import torchvision
from PIL import Image
from torchvision import transforms
from torchvision.transforms import functional

from fixture_images import digest, drawn, encoded

OUT = Path(__file__).resolve().parents[2] / "fixtures" / "images.json"
QUANTILES = [0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99]
DRAWS = 200000


def turned(orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encoded(drawn(37, 29, 30 + orientation), "JPEG", quality=85, exif=exif)


def images() -> dict[str, bytes]:
    base = drawn(53, 37, 1)
    wide = cv2.cvtColor(np.asarray(drawn(19, 23, 2)), cv2.COLOR_RGB2BGR).astype(np.uint16) * 257 - 3
    alpha = drawn(20, 20, 3)
    alpha.putalpha(Image.linear_gradient("L").resize((20, 20)))
    made = {f"jpeg_{name}": encoded(base, "JPEG", quality=80, subsampling=way)
            for name, way in (("444", 0), ("422", 1), ("420", 2))}
    made |= {
        "jpeg_progressive": encoded(drawn(61, 40, 4), "JPEG", quality=80, progressive=True),
        "jpeg_restarts": encoded(drawn(61, 40, 5), "JPEG", quality=80, restart_marker_blocks=2),
        "jpeg_grey": encoded(base.convert("L"), "JPEG", quality=80),
        "jpeg_cmyk": encoded(base.convert("CMYK"), "JPEG", quality=80),
        "jpeg_one_pixel": encoded(drawn(1, 1, 6), "JPEG"),
        "jpeg_one_row": encoded(drawn(300, 1, 7), "JPEG"),
        "jpeg_padded": encoded(base, "JPEG", quality=60) + b"\0\0\0",
        "png": encoded(drawn(31, 17, 8), "PNG"),
        "png_palette": encoded(drawn(31, 17, 9).quantize(16), "PNG"),
        "png_grey": encoded(drawn(31, 17, 10).convert("L"), "PNG"),
        "png_alpha": encoded(alpha, "PNG"),
        "png_16_bits": cv2.imencode(".png", wide)[1].tobytes(),
        "png_one_pixel": encoded(drawn(1, 1, 11), "PNG"),
    }
    return made | {f"jpeg_orientation_{i}": turned(i) for i in range(1, 9)}


def described(data: bytes) -> dict[str, object]:
    pixels = cv2.cvtColor(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)
    height, width = pixels.shape[:2]
    image = Image.fromarray(pixels)  # the same pixels from here on
    evaluate = transforms.Compose([
        transforms.Resize(256), transforms.CenterCrop(224), transforms.ToTensor(),
        transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ])
    parts = []
    rng = np.random.default_rng(width * 1000 + height)
    for _ in range(4):
        w, h = int(rng.integers(1, width + 1)), int(rng.integers(1, height + 1))
        x, y = int(rng.integers(0, width - w + 1)), int(rng.integers(0, height - h + 1))
        size = int(rng.integers(1, 40))
        # First across, then down. Pillow 13 takes the other order where that is less work, and its bytes then differ by 1.
        cut = functional.crop(image, y, x, h, w)
        resized = functional.resize(functional.resize(cut, [h, size]), [size, size])
        parts.append([x, y, w, h, size, digest(resized.tobytes())])
    return {
        "file": base64.b64encode(data).decode(), "width": width, "height": height, "pixels": digest(pixels.tobytes()),
        "eval": digest(evaluate(image).numpy().tobytes()), "parts": parts,
    }


def crop_quantiles(width: int, height: int) -> dict[str, object]:
    """Returns quantiles of the area, log aspect and relative position of crops that torchvision's RandomResizedCrop draws.
    The position is relative to the free space."""
    torch.manual_seed(width * 7 + height)
    image = torch.empty(3, height, width)
    boxes = np.array([transforms.RandomResizedCrop.get_params(image, [0.08, 1.0], [3 / 4, 4 / 3]) for _ in range(DRAWS)])
    y, x, h, w = boxes.T.astype(float)
    free_x, free_y = w < width, h < height
    return {
        "width": width, "height": height,
        "area": np.quantile(w * h / (width * height), QUANTILES).tolist(),
        "log_aspect": np.quantile(np.log(w / h), QUANTILES).tolist(),
        "x": np.quantile(x[free_x] / (width - w[free_x]), QUANTILES).tolist(),
        "y": np.quantile(y[free_y] / (height - h[free_y]), QUANTILES).tolist(),
    }


def cifar_cuts() -> list[list[object]]:
    """Returns rows [right, down, flip, degrees, digest of the bytes] for one image whose byte i is i * 7 mod 251."""
    planes = (np.arange(3072) * 7 % 251).astype(np.uint8).reshape(3, 32, 32)
    image = Image.fromarray(planes.transpose(1, 2, 0))
    rng = np.random.default_rng(5)
    out: list[list[object]] = []
    for _ in range(40):
        right, down, flip = int(rng.integers(0, 9)), int(rng.integers(0, 9)), bool(rng.integers(0, 2))
        degrees = round(float(rng.uniform(-15, 15)), 6)
        cut = functional.crop(functional.pad(image, [4, 4, 4, 4]), down, right, 32, 32)
        cut = functional.rotate(functional.hflip(cut) if flip else cut, degrees)
        out.append([right, down, flip, degrees, digest(cut.tobytes())])
    return out


def main() -> None:
    made = {
        "made_by": f"opencv {cv2.__version__}, pillow {Image.__version__}, torchvision {torchvision.__version__}",
        "images": {name: described(data) for name, data in images().items()},
        "quantiles": QUANTILES, "draws": DRAWS,
        "crops": [crop_quantiles(w, h) for w, h in ((500, 375), (224, 224), (96, 400), (30, 33))],
        "flip_rate": 0.5,
        "log_aspect_limits": [math.log(3 / 4), math.log(4 / 3)],
        "cifar_cuts": cifar_cuts(),
    }
    text = json.dumps(made, separators=(",", ":")).replace('},"', '},\n"').replace('],"', '],\n"').replace('],[', '],\n[')
    OUT.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Writes tests/fixtures/other_images.json: small BMP, TIFF, WebP and PNM images, and PNG and JPEG with rare features.

    python3 tests/python/references/make_other_images_fixture.py        # needs opencv-python-headless, pillow

The file holds each image as base64, with the digest (FNV-1a, 64 bits) of its right pixels, red first, and their source.
"pillow" (upright, convert("RGB")) is the source wherever Pillow converts. "opencv" is the source where only cv2.imread
defines the pixels. "numbers" is the source where both libraries are wrong (Pillow clips 16-bit grey) and the upper 8 bits
are right. "refused" holds valid images that aren't supported, with their error messages."""

from __future__ import annotations

import base64
import io
import json
import struct
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
from PIL import Image, ImageOps

from fixture_images import digest, drawn, encoded

OUT = Path(__file__).resolve().parents[2] / "fixtures" / "other_images.json"
WIDTH, HEIGHT = 19, 11
BASE = drawn(WIDTH, HEIGHT, 1)
RNG = np.random.default_rng(3)
WIDE = RNG.integers(0, 65536, (HEIGHT, WIDTH, 4)).astype("<u2")


def with_alpha() -> Image.Image:
    out = BASE.copy()
    out.putalpha(Image.linear_gradient("L").resize(BASE.size))
    return out


def bmp(bits: int, how: int, pixels: bytes, *, masks: tuple[int, ...] = (), palette: bytes = b"", down: int = 1) -> bytes:
    """Returns a BMP file with a BITMAPINFOHEADER. Rows in `pixels` include their padding."""
    extra = struct.pack(f"<{len(masks)}I", *masks) + palette
    start = 54 + len(extra)
    return (b"BM" + struct.pack("<IHHI", start + len(pixels), 0, 0, start)
            + struct.pack("<IiiHHIIiiII", 40, WIDTH, HEIGHT * down, 1, bits, how, len(pixels), 1, 1, len(palette) // 4, 0)
            + extra + pixels)


def os2_bmp() -> bytes:
    rows = RNG.integers(0, 256, (HEIGHT, WIDTH * 3 + 3), dtype=np.uint8).tobytes()
    return b"BM" + struct.pack("<IHHI", 26 + len(rows), 0, 0, 26) + struct.pack("<IHHHH", 12, WIDTH, HEIGHT, 1, 24) + rows


def tiff(strips: list[bytes], bits: int, colours: int, samples: int, order: str = "<", **more: int) -> bytes:
    """Returns an uncompressed TIFF file with one strip, or one strip per plane. `more` holds additional entries, such as
    t274=6."""
    forms = {3: "H", 4: "I"}
    entries = {256: (3, [WIDTH]), 257: (3, [HEIGHT]), 258: (3, [bits] * samples), 259: (3, [1]), 262: (3, [colours]),
               273: (4, [0] * len(strips)), 277: (3, [samples]), 278: (3, [HEIGHT]), 279: (4, [len(s) for s in strips])}
    entries |= {int(tag[1:]): (3, [value]) for tag, value in more.items()}
    sizes = {tag: struct.calcsize(forms[form]) * len(values) for tag, (form, values) in entries.items()}
    beyond = 8 + 2 + 12 * len(entries) + 4
    at = beyond + sum(size for size in sizes.values() if size > 4)
    entries[273] = (4, [at + sum(map(len, strips[:i])) for i in range(len(strips))])
    directory, far = b"", b""
    for tag, (form, values) in sorted(entries.items()):
        raw = struct.pack(order + forms[form] * len(values), *values)
        directory += struct.pack(order + "HHI", tag, form, len(values))
        directory += raw.ljust(4, b"\0") if len(raw) <= 4 else struct.pack(order + "I", beyond + len(far))
        far += raw if len(raw) > 4 else b""
    mark = b"II*\0" if order == "<" else b"MM\0*"
    return mark + struct.pack(order + "IH", 8, len(entries)) + directory + bytes(4) + far + b"".join(strips)


def turned(form: str, orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = drawn(WIDTH, HEIGHT, 30 + orientation)
    if form == "TIFF":
        return encoded(image, form, tiffinfo={0x0112: orientation})
    return encoded(image, form, exif=exif, lossless=True)


def ycck() -> bytes:
    """Returns a CMYK JPEG whose Adobe marker declares its colours as YCCK."""
    data = bytearray(encoded(BASE.convert("CMYK"), "JPEG", quality=90))
    data[data.index(b"Adobe") + 11] = 2
    return bytes(data)


def bmps() -> dict[str, bytes]:
    sixteen = RNG.integers(0, 256, (HEIGHT, WIDTH * 2 + 2), dtype=np.uint8).tobytes()
    four = RNG.integers(0, 256, (HEIGHT, WIDTH * 4), dtype=np.uint8).tobytes()
    runs = b"".join(bytes([4, y, 0, 5, 1, 2, 3, 4, 5, 0, 10, y + 100]) + b"\0\0" for y in range(HEIGHT))[:-2] + b"\0\1"
    palette = RNG.integers(0, 256, 1024, dtype=np.uint8).tobytes()
    modes = {"1": BASE.convert("1"), "grey": BASE.convert("L"), "palette": BASE.quantize(40), "rgb": BASE,
             "alpha": with_alpha()}
    return {f"bmp_{name}": encoded(image, "BMP") for name, image in modes.items()} | {
        "bmp_555": bmp(16, 0, sixteen), "bmp_565": bmp(16, 3, sixteen, masks=(0xF800, 0x7E0, 0x1F)),
        "bmp_masks": bmp(32, 3, four, masks=(0xFF0000, 0xFF00, 0xFF)), "bmp_runs": bmp(8, 1, runs, palette=palette),
        "bmp_top_down": bmp(32, 0, four, down=-1), "bmp_os2": os2_bmp(),
    }


def tiffs() -> dict[str, bytes]:
    made = {f"tiff_{name}": encoded(BASE, "TIFF", compression=way) for name, way in (
        ("plain", None), ("lzw", "tiff_lzw"), ("deflate", "tiff_adobe_deflate"), ("packbits", "packbits"), ("jpeg", "jpeg"))}
    modes = {"1": BASE.convert("1"), "grey": BASE.convert("L"), "palette": BASE.quantize(40), "alpha": with_alpha(),
             "grey_alpha": with_alpha().convert("LA"), "cmyk": BASE.convert("CMYK")}
    made |= {f"tiff_{name}": encoded(image, "TIFF", compression="tiff_lzw") for name, image in modes.items()}
    eight = (WIDE >> 8).astype(np.uint8)
    return made | {
        "tiff_big_endian": tiff([eight[:, :, :3].tobytes()], 8, 2, 3, ">"),
        "tiff_alpha_big_endian": tiff([eight.tobytes()], 8, 2, 4, ">", t338=2),
        "tiff_planes": tiff([eight[:, :, i].tobytes() for i in range(3)], 8, 2, 3, t284=2),
        "tiff_white_is_0": tiff([eight[:, :, 0].tobytes()], 8, 0, 1),
        "tiff_16": tiff([WIDE[:, :, :3].tobytes()], 16, 2, 3),
        "tiff_16_alpha": tiff([WIDE.tobytes()], 16, 2, 4, t338=2),
        "tiff_16_turned": tiff([WIDE[:, :, :3].tobytes()], 16, 2, 3, t274=6),
    } | {f"tiff_orientation_{i}": turned("TIFF", i) for i in range(1, 9)}


def webps() -> dict[str, bytes]:
    return {
        "webp": encoded(BASE, "WEBP", quality=70), "webp_grey": encoded(BASE.convert("L"), "WEBP", quality=90),
        "webp_lossless": encoded(BASE, "WEBP", lossless=True),
        "webp_alpha": encoded(with_alpha(), "WEBP", lossless=True, exact=True),
    } | {f"webp_orientation_{i}": turned("WEBP", i) for i in range(1, 9)}


def pnms() -> dict[str, bytes]:
    numbers = " ".join(map(str, np.asarray(BASE).ravel())).encode()
    return {"pnm_ppm": encoded(BASE, "PPM"), "pnm_pgm": encoded(BASE.convert("L"), "PPM"),
            "pnm_pbm": encoded(BASE.convert("1"), "PPM"),
            "pnm_text": b"P3 # a note\n" + f"{WIDTH} {HEIGHT}\n255\n".encode() + numbers + b"\n"}


def by_pillow(data: bytes) -> np.ndarray:
    return np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB"))


def by_opencv(data: bytes) -> np.ndarray:
    return cv2.cvtColor(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)


def grey(values: np.ndarray) -> np.ndarray:
    return np.repeat((values >> 8).astype(np.uint8)[:, :, None], 3, 2)


def refused() -> dict[str, list[str]]:
    moving = io.BytesIO()
    BASE.save(moving, "WEBP", save_all=True, append_images=[drawn(WIDTH, HEIGHT, 7)])
    many = RNG.integers(0, 256, (HEIGHT, WIDTH * 8), dtype=np.uint8)
    made = {
        "webp_moving": (moving.getvalue(), "a WebP with animation; only still images are supported"),
        "bmp_other_masks": (bmp(32, 3, many[:, :WIDTH * 4].tobytes(), masks=(0xFF, 0xFF00, 0xFF0000)),
                            "a BMP with the masks ff, ff00 and ff0000 for red, green and blue"),
        "tiff_float": (encoded(BASE.convert("F"), "TIFF"), "a TIFF with 32 bits per value; only 1, 8 and 16 are supported"),
        "tiff_signed": (tiff([many[:, :WIDTH].tobytes()], 8, 1, 1, t339=2), "a TIFF with signed or floating-point values"),
        "tiff_five": (tiff([many[:, :WIDTH * 5].tobytes()], 8, 2, 5), "a TIFF with 5 channels; at most 4 are supported"),
        "tiff_lab": (tiff([many[:, :WIDTH * 3].tobytes()], 8, 8, 3),
                     "a TIFF with color scheme (PhotometricInterpretation) 8"),
        "tiff_16_white_is_0": (tiff([many[:, :WIDTH * 2].tobytes()], 16, 0, 1),
                               "a TIFF with 16 bits per value; only grey (BlackIsZero)"),
        "tiff_16_planes": (tiff([many[:, :WIDTH * 2].tobytes()] * 3, 16, 2, 3, t284=2), "and RGB with interleaved channels"),
        "pnm_100": (b"P5 2 2 100\n\1\2\3\4", "a PNM with the maximum value 100; only 255 and 65535 are supported"),
        "bmp_many_pixels": (b"BM" + bytes(12) + struct.pack("<IiiHHI", 40, 1 << 20, -(1 << 20), 1, 24, 0) + bytes(20),
                            "a BMP of 1048576 x 1048576 pixels; at most 268435456 pixels are supported"),
        "gif": (encoded(BASE.quantize(8), "GIF"), "not a JPEG, PNG, BMP, TIFF, WebP or PNM image"),
    }
    return {name: [base64.b64encode(data).decode(), says] for name, (data, says) in made.items()}


def main() -> None:
    pillow = bmps() | tiffs() | webps() | pnms() | {f"png_orientation_{i}": turned("PNG", i) for i in range(1, 9)}
    opencv = {name: pillow.pop(name) for name in ("bmp_555", "bmp_565")}  # a shift turns five bits into eight
    # Pillow's differ by at most 1
    opencv |= {"jpeg_ycck": ycck(), "jpeg_cmyk": encoded(BASE.convert("CMYK"), "JPEG", quality=90)}
    pillow["png_16_alpha"] = cv2.imencode(".png", WIDE)[1].tobytes()
    numbers = {
        "tiff_16_grey": (tiff([WIDE[:, :, 0].tobytes()], 16, 1, 1), grey(WIDE[:, :, 0])),
        "tiff_16_grey_big_endian": (tiff([WIDE[:, :, 0].byteswap().tobytes()], 16, 1, 1, ">"), grey(WIDE[:, :, 0])),
        "png_16_grey": (cv2.imencode(".png", WIDE[:, :, 0])[1].tobytes(), grey(WIDE[:, :, 0])),
        "pnm_16": (cv2.imencode(".ppm", WIDE[:, :, :3])[1].tobytes(), (WIDE[:, :, 2::-1] >> 8).astype(np.uint8)),
    }
    ways: list[tuple[str, dict[str, bytes], Callable[[bytes], np.ndarray]]] = [
        ("pillow", pillow, by_pillow), ("opencv", opencv, by_opencv)]
    rows = [(name, data, way, read(data)) for way, files, read in ways for name, data in files.items()]
    rows += [(name, data, "numbers", pixels) for name, (data, pixels) in numbers.items()]
    images = {name: {"file": base64.b64encode(data).decode(), "by": way, "height": pixels.shape[0],
                       "width": pixels.shape[1], "pixels": digest(np.ascontiguousarray(pixels).tobytes())}
                for name, data, way, pixels in rows}
    made = {"made_by": f"opencv {cv2.__version__}, pillow {Image.__version__}", "images": images, "refused": refused()}
    text = json.dumps(made, separators=(",", ":")).replace('},"', '},\n"').replace('],"', '],\n"')
    OUT.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

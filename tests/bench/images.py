#!/usr/bin/env python3
"""Times reading images for training (decode, random resized crop to 224, mirror, normalise) on one thread, in processor
time: Hetu's loader beside torchvision's DataLoader and a plain OpenCV loop. All run in turn; prints medians, spread and
the ratios ours / theirs.

usage: images.py [--rounds N] [--images N] [--size 400] [--torch PYTHON] [--opencv PYTHON]

--torch and --opencv name Pythons that have torchvision, and cv2 and numpy (default: this one).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import hetu as ht
from hetu import _hetu

HERE = Path(__file__).resolve().parent
BATCH = 64


def rival(python: str, name: str, folder: str, rounds: int) -> list[float]:
    """Milliseconds per image in each round; none if it is not installed."""
    command = [python, str(HERE / "images_rivals.py"), name, folder, str(BATCH), str(rounds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 3:
        print(f"images: {name} is not installed in {python}; it is not timed", file=sys.stderr)
        return []
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr}")
    return list(json.loads(done.stdout)["ms"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--size", type=int, default=400)
    parser.add_argument("--torch", default=sys.executable)
    parser.add_argument("--opencv", default=sys.executable)
    args = parser.parse_args()
    if not _hetu.reads_images():
        print("images: this build reads no images", file=sys.stderr)
        return 0
    times: dict[str, list[float]] = {"Hetu": [], "torchvision": [], "OpenCV": []}
    with tempfile.TemporaryDirectory() as root:
        _hetu.write_drawn_folder(root, 4, args.images // 4, 1, args.size, 1)
        folder = f"{root}/train"
        data = ht.data.ImageFolder(folder, BATCH, threads=1)
        loader = _hetu.image_folder_loader(data.list, 224, True, 0, 1, _hetu.LoaderOptions(1, 0, BATCH, [], 0))
        loader.next()
        for _ in range(args.rounds):
            start = time.process_time()
            for _ in range(len(data) // BATCH):
                loader.next()
            times["Hetu"].append(1e3 * (time.process_time() - start) / len(data))
            times["torchvision"] += rival(args.torch, "torchvision", folder, 1)
            times["OpenCV"] += rival(args.opencv, "cv2", folder, 1)
    print(f"{args.images} images of {args.size} x {args.size} to 224 x 224, processor time, {args.rounds} rounds")
    ours = statistics.median(times["Hetu"])
    for name, found in times.items():
        if found:
            middle = statistics.median(found)
            print(f"  {name:12} {middle:6.2f} ms an image, {min(found):.2f} to {max(found):.2f}; "
                  f"{1e3 / middle:.0f} a second and core" +
                  ("" if name == "Hetu" else f"; ratio Hetu / {name}: {ours / middle:.3f}"))
    return 0


if __name__ == "__main__":
    sys.exit(main())

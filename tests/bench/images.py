#!/usr/bin/env python3
"""Times reading images for training (decode, random resized crop to 224, mirror, normalise).

First in CPU time on one thread: Hetu's loader, torchvision's DataLoader and a plain OpenCV loop. All run in turn; prints
medians, spread and the ratios Hetu / other. Then in wall-clock time: batches of 128 that all threads read ahead, as in
training.

usage: images.py [--rounds N] [--images N] [--size 400] [--threads N] [--clock-only] [--torch PYTHON] [--opencv PYTHON]

--torch and --opencv name Pythons that have torchvision, and cv2 and numpy (default: this one)."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import hetu as ht
from hetu import _hetu

HERE = Path(__file__).resolve().parent
BATCH = 64


def rival(python: str, name: str, folder: str, rounds: int) -> list[float]:
    """Returns the milliseconds per image in each round, or an empty list if the library isn't installed."""
    command = [python, str(HERE / "images_rivals.py"), name, folder, str(BATCH), str(rounds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 3:
        print(f"images: {name} is not installed in {python}; it is not timed", file=sys.stderr)
        return []
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr}")
    return list(json.loads(done.stdout)["ms"])


def read_in_processor_time(data: Any) -> float:
    """Returns the milliseconds per image of one thread, once over the folder. The first batch, which initializes the loader,
    isn't counted."""
    loader = _hetu.image_folder_loader(data.list, 224, True, 0, 1, _hetu.LoaderOptions(1, 0, BATCH, [], 0))
    loader.next()
    start = time.process_time()
    for _ in range(len(data) // BATCH):
        loader.next()
    return 1e3 * (time.process_time() - start) / len(data)


def read_ahead(files: Any, images: int, rounds: int, threads: int) -> list[float]:
    """Returns the images per second of wall-clock time in each round, for a loader that reads batches ahead on all threads.
    """
    batch = min(128, images)
    loader = _hetu.image_folder_loader(files, 224, True, 0, threads, _hetu.LoaderOptions(1, 0, batch, [], 4))
    for _ in range(6):  # batches that were read ahead at the start don't show the rate
        loader.next()
    steps = max(images // batch, 8)
    rates = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(steps):
            loader.next()
        rates.append(steps * batch / (time.perf_counter() - start))
    return rates


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--size", type=int, default=400)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--clock-only", action="store_true", help="nothing in processor time, and nobody beside Hetu")
    parser.add_argument("--torch", default=sys.executable)
    parser.add_argument("--opencv", default=sys.executable)
    args = parser.parse_args()
    if not _hetu.reads_images():
        print("images: this build cannot read images", file=sys.stderr)
        return 0
    times: dict[str, list[float]] = {"Hetu": [], "torchvision": [], "OpenCV": []}
    with tempfile.TemporaryDirectory() as root:
        _hetu.write_drawn_folder(root, 4, args.images // 4, 1, args.size, 1)
        folder = f"{root}/train"
        data = ht.data.ImageFolder(folder, BATCH, threads=1)
        for _ in range(0 if args.clock_only else args.rounds):
            times["Hetu"].append(read_in_processor_time(data))
            times["torchvision"] += rival(args.torch, "torchvision", folder, 1)
            times["OpenCV"] += rival(args.opencv, "cv2", folder, 1)
        rates = read_ahead(data.list, args.images, args.rounds, args.threads)
    print(f"{args.images} images of {args.size} x {args.size} to 224 x 224, {args.rounds} rounds"
          + ("" if args.clock_only else ", processor time"))
    for name, found in times.items():
        if found:
            middle, ours = statistics.median(found), statistics.median(times["Hetu"])
            print(f"  {name:12} {middle:6.2f} ms an image, {min(found):.2f} to {max(found):.2f}; "
                  f"{1e3 / middle:.0f} a second and core" +
                  ("" if name == "Hetu" else f"; ratio Hetu / {name}: {ours / middle:.3f}"))
    print(f"  Hetu, {args.threads} threads: {statistics.median(rates):.0f} images a second by the clock, "
          f"{min(rates):.0f} to {max(rates):.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

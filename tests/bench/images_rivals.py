#!/usr/bin/env python3
"""The libraries that images.py compares Hetu with, in a Python that has them: images_rivals.py NAME FOLDER BATCH ROUNDS.

Prints the CPU milliseconds per image of each round, after a warm-up. Exits with status 3 where NAME is not installed."""

from __future__ import annotations

import glob
import json
import math
import random
import sys
import time
from collections.abc import Callable

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def torchvision_epoch(folder: str, batch: int) -> Callable[[], int]:
    import torch
    import torchvision
    from torchvision import transforms

    torch.set_num_threads(1)
    steps = [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
             transforms.Normalize(MEAN, STD)]
    data = torchvision.datasets.ImageFolder(folder, transforms.Compose(steps))
    loader = torch.utils.data.DataLoader(data, batch, shuffle=True)
    return lambda: sum(len(labels) for _, labels in loader)


def crop(width: int, height: int) -> tuple[int, int, int, int]:
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1)
        aspect = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if w <= width and h <= height:
            return random.randint(0, width - w), random.randint(0, height - h), w, h
    return 0, 0, width, height


def cv2_epoch(folder: str, batch: int) -> Callable[[], int]:
    import cv2
    import numpy as np

    cv2.setNumThreads(1)
    paths = glob.glob(f"{folder}/*/*.jpg")
    out = np.empty((batch, 3, 224, 224), np.float32)
    mean, std = np.float32(MEAN), np.float32(STD)

    def epoch() -> int:
        random.shuffle(paths)
        for i, path in enumerate(paths):
            image = cv2.imread(path)
            x, y, w, h = crop(image.shape[1], image.shape[0])
            image = cv2.resize(image[y : y + h, x : x + w], (224, 224), interpolation=cv2.INTER_LINEAR)
            image = cv2.cvtColor(image, cv2.COLOR_BGR2RGB)
            if random.random() < 0.5:
                image = cv2.flip(image, 1)
            values = image.astype(np.float32)
            values *= np.float32(1 / 255)
            values -= mean
            values /= std
            out[i % batch] = values.transpose(2, 0, 1)
        return len(paths)

    return epoch


def main() -> int:
    name, folder, batch, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    try:
        epoch = {"torchvision": torchvision_epoch, "cv2": cv2_epoch}[name](folder, batch)
    except ImportError:
        return 3
    epoch()
    times = []
    for _ in range(rounds):
        start = time.process_time()
        images = epoch()
        times.append(1e3 * (time.process_time() - start) / images)
    print(json.dumps({"ms": times}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

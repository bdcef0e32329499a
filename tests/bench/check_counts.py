#!/usr/bin/env python3
"""Counts the instructions of a small training step of each model by callgrind, and compares them with step_counts.json.

usage: check_counts.py [--only MODEL,…] [--write]

Exit status 1: a model takes more than 5 % above its count. Instructions don't depend on the load of a machine. They do
depend on the compiler, on libraries and on the instructions that these choose. If these differ from the ones in
step_counts.json, counts are not compared (status 77, a skip). Kernels are compiled for any x86-64, in a separate build
(preset count), because callgrind doesn't know AVX-512. oneDNN is limited to AVX2, and uses the cache sizes of valgrind's
processor, not of the machine's. --write stores the counts in step_counts.json."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hetu as ht

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
COUNTS = HERE / "step_counts.json"
BUILD = ROOT / "build-count"
BOUND = 1.05
SKIPPED = 77
LENGTH, WORDS = 32, 500


def bert(**changes: Any) -> Any:
    fields = [("input_ids", "int32", [LENGTH]), ("input_mask", "int32", [LENGTH]), ("segment_ids", "int32", [LENGTH]),
              ("masked_lm_positions", "int32", [5]), ("masked_lm_ids", "int32", [5]), ("next_sentence_labels", "int32", [])]
    return ht.models.Bert.from_config("tiny", vocab_size=WORDS, **changes).pretraining_loss(ht.data.Data(fields, 4))


def text(model: Any) -> Any:
    return model.loss(ht.data.Data([("ids", "int32", [LENGTH + 1])], 4))


def images(model: Any, size: int = 32) -> Any:
    return model.loss(ht.data.Data([("image", "float32", [3, size, size]), ("label", "int32", [])], 4))


def clicks(model: Any) -> Any:
    return model.loss(ht.data.Data([("label", "int32", []), ("dense", "float32", [13]), ("ids", "int32", [26])], 4))


MODELS: dict[str, Callable[[], Any]] = {
    "bert": bert,
    "bert-gelu": lambda: bert(hidden_act="gelu"),
    "gpt": lambda: text(ht.models.Gpt.from_config("tiny", vocab_size=WORDS)),
    "llama": lambda: text(ht.models.Llama.from_config("tiny", vocab_size=WORDS)),
    "resnet18": lambda: images(ht.models.ResNet("resnet18", 10)),
    "vit": lambda: images(ht.models.ViT.from_config("vit-tiny", image_size=32, num_labels=10)),
    "wide-deep": lambda: clicks(ht.models.WideDeep(100)),
    "dlrm": lambda: clicks(ht.models.Dlrm(100)),
}


def tools() -> str:
    """Returns the tools that counts depend on: the compiler that CMake found, libraries, valgrind, and whether oneDNN has
    AVX2."""
    cache = (BUILD / "CMakeCache.txt").read_text()
    found = re.search(r"^CMAKE_CXX_COMPILER:\w+=(.+)$", cache, re.MULTILINE)
    assert found, "a configured build names its compiler"

    def said(*words: str) -> str:
        return subprocess.run([*words], capture_output=True, text=True, check=True).stdout

    dnnl = re.search(r"^HETU_ONEDNN_VERSION:INTERNAL=(.+)$", cache, re.MULTILINE)
    assert dnnl, "HetuParts.cmake says which oneDNN it found"
    level = "AVX2" if " avx2 " in Path("/proc/cpuinfo").read_text() else "no AVX2"
    return ", ".join([said(found[1], "--version").splitlines()[0], platform.machine(), f"oneDNN {dnnl[1]} with {level}",
                      " ".join(platform.libc_ver()), said("valgrind", "--version").strip()])


def build() -> None:
    for command in (["cmake", "--preset", "count"], ["cmake", "--build", str(BUILD), "-j", str(os.cpu_count()), "--target",
                                                     "step_counts"]):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode != 0:
            said = done.stdout[-2000:] + done.stderr[-2000:]
            raise SystemExit(f"check_counts.py: {' '.join(command)}: status {done.returncode}\n{said}")


def counted(name: str, folder: Path) -> int:
    """Returns the number of instructions of the model's three steps."""
    ht.new_graph()
    ht.optim.AdamW(1e-4).minimize(MODELS[name]())
    graph = folder / f"{name}.txt"
    graph.write_text(str(ht.graph.current().builder.finish()))
    done = subprocess.run(
        ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder / name}.out",
         "--toggle-collect=hetu::Executor::step*", str(BUILD / "bin" / "step_counts"), str(graph)],
        capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1", "ONEDNN_MAX_CPU_ISA": "AVX2"})
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode != 0 or not found or int(found[1]) == 0:
        raise SystemExit(f"check_counts.py: {name}: status {done.returncode}\n{done.stdout}{done.stderr[-2000:]}")
    return int(found[1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(MODELS), metavar="MODEL,…")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    names = args.only.split(",")
    for name in names:
        if name not in MODELS:
            parser.error(f"--only: there is no model '{name}'; there are: {', '.join(MODELS)}")
    if subprocess.run(["valgrind", "--version"], capture_output=True, check=False).returncode != 0:
        print("check_counts.py: skipped: valgrind is not installed")
        return SKIPPED
    if not COUNTS.exists() and not args.write:
        print(f"check_counts.py: skipped: there is no {COUNTS.name} yet; --write makes it")
        return SKIPPED
    known: dict[str, Any] = json.loads(COUNTS.read_text()) if COUNTS.exists() else {"tools": "", "instructions": {}}
    build()
    mine = tools()
    if known["tools"] != mine and not args.write:
        print(f"check_counts.py: skipped: the counts are of {known['tools']}, and here are {mine}")
        return SKIPPED
    over = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            count, before = counted(name, Path(folder)), known["instructions"].get(name)
            change = f", {100 * (count / before - 1):+.2f} %" if before else ""
            print(f"{name}: {count:,} instructions{change}", flush=True)
            if args.write:
                known["instructions"][name] = count
            elif before is None:
                over.append(f"{name} has no count in {COUNTS.name}: check_counts.py --write")
            elif count > BOUND * before:
                over.append(f"{name} takes {count:,} instructions, {count / before:.3f} of the {before:,} in {COUNTS.name}")
    if args.write:
        known["tools"] = mine
        COUNTS.write_text(json.dumps(known, indent=1) + "\n")
    for line in over:
        print(f"check_counts.py: {line}", file=sys.stderr)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())

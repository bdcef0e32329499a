"""Varuna's folder of a checkpoint: a file per piece of the model, so that other numbers of stages and replicas read it.

STORE/varuna_ckpt_STEP/ has opt-fp32-params-PIECE (name -> tensor), opt-state-PIECE (name -> state of the optimizer),
buffers-PIECE where there are some, opt-common-state (what is no parameter's), and markers/complete_RANK.txt. Where replicas
share the work, files of parameters end in _REPLICA. Each file is written beside and renamed; a rank's marker is its last
one, with the sizes and hashes of what the rank has written, and the checkpoint is complete once all ranks' markers of one
save are there. So a save that ends in the middle, or is still under way, is never taken for one that is complete.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from hetu import _hetu, files

COMMON = "opt-common-state"
Files = dict[str, dict[str, Any]]  # what each file holds, by its name


def folder_of(store: str | os.PathLike[str], step: int) -> Path:
    """Of the checkpoint after `step` steps."""
    return Path(store) / f"varuna_ckpt_{step}"


def write(folder: Path, files: Files) -> dict[str, list[Any]]:
    """Writes a rank's files; bytes and SHA-256 of each."""
    folder.mkdir(parents=True, exist_ok=True)
    told: dict[str, list[Any]] = {}
    for name, value in files.items():
        beside = folder / f".{name}.part"
        with open(beside, "wb") as file:
            torch.save(value, file)
            file.flush()
            os.fsync(file.fileno())
        told[name] = [beside.stat().st_size, _hash(beside)]
        os.replace(beside, folder / name)
    return told


def mark(folder: Path, rank: int, marker: Mapping[str, Any]) -> None:
    """A rank's last file. `marker`: ranks, of the job; save, alike on all of them; files, as write() gives them; written,
    the names of tensors in each."""
    place = _marker(folder, rank)
    place.parent.mkdir(parents=True, exist_ok=True)
    files.write_text(place, json.dumps(dict(marker), indent=1))


def unmark(folder: Path, rank: int) -> None:
    """Before a rank writes there once more."""
    _marker(folder, rank).unlink(missing_ok=True)


def upload(here: Path, folder: Path, rank: int, marker: Mapping[str, Any]) -> None:
    """Copies a rank's files to where the checkpoint is to stand, then its marker; what was here goes. Steps
    that go on meanwhile are not held up. Throws OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    besides = {name: folder / f".{name}.part" for name in marker["files"]}
    _hetu.copy_behind([(os.fspath(here / name), os.fspath(beside)) for name, beside in besides.items()])
    for name, beside in besides.items():
        os.replace(beside, folder / name)
    mark(folder, rank, marker)
    shutil.rmtree(here)


def markers_of(folder: Path, complete: bool) -> list[dict[str, Any]]:
    """The markers of one save, by rank. Throws OSError, naming the first that is missing, if all are to be there."""
    if not folder.is_dir():
        raise OSError(f"{folder}: there is no such checkpoint")
    found: list[dict[str, Any]] = []
    for rank in range(_ranks(folder)):
        place = _marker(folder, rank)
        marker = files.read_json(place) if place.is_file() else {}
        if complete and (not marker or (found and marker["save"] != found[0]["save"])):
            raise OSError(f"{folder}: not complete: markers/{place.name} {'is of another save' if marker else 'is missing'}")
        if marker:
            found.append(marker)
    return found


def read(folder: Path, file: str, marker: Mapping[str, Any], complete: bool) -> dict[str, Any]:
    """What a file holds. Throws OSError where it is not what its rank has written."""
    place = folder / file
    if not place.is_file():
        raise OSError(f"{folder}: {file} is missing, which a marker names")
    if complete and [place.stat().st_size, _hash(place)] != marker["files"][file]:
        raise OSError(f"{folder}: {file} is not what was written: other bytes than its marker says")
    try:
        return dict(torch.load(place, weights_only=True, map_location="cpu"))
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise OSError(f"{folder}: {file} cannot be read: {type(error).__name__}") from None


def latest(store: str | os.PathLike[str]) -> int | None:
    """The step of the last complete checkpoint in a store, None without one."""
    steps = [int(place.name.removeprefix("varuna_ckpt_")) for place in Path(store).glob("varuna_ckpt_*")
             if place.name.removeprefix("varuna_ckpt_").isdigit()]
    for step in sorted(steps, reverse=True):
        try:
            markers_of(folder_of(store, step), complete=True)
        except (OSError, ValueError, KeyError):
            continue
        return step
    return None


def _ranks(folder: Path) -> int:
    """Of the job that saved: the first marker says it."""
    for place in sorted(folder.glob("markers/complete_*.txt")):
        return int(files.read_json(place)["ranks"])
    raise OSError(f"{folder}: not complete: no marker is there")


def _marker(folder: Path, rank: int) -> Path:
    return folder / "markers" / f"complete_{rank}.txt"


def _hash(path: Path) -> str:
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while part := file.read(1 << 22):
            found.update(part)
    return found.hexdigest()

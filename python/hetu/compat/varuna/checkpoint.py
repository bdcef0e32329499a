"""Varuna's checkpoint folder: a file per piece of the model, so that other numbers of stages and replicas can read it.

STORE/varuna_ckpt_STEP/ contains opt-fp32-params-PIECE (name -> tensor), opt-state-PIECE (name -> state of the optimizer),
buffers-PIECE if there are buffers, opt-common-state (everything that belongs to no parameter), and
markers/complete_RANK.txt. If replicas share the work, names of parameter files end in _REPLICA.

Each file is written under a temporary name and renamed. A rank writes its marker last, with the sizes and hashes of its
files. The checkpoint is complete once the markers of all ranks for one save exist. So an interrupted or unfinished save is
never taken for a complete one.
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

from hetu import _hetu, files

COMMON = "opt-common-state"
Files = dict[str, dict[str, Any]]  # file name -> contents


def folder_of(store: str | os.PathLike[str], step: int) -> Path:
    """Returns the folder of the checkpoint after `step` steps."""
    return Path(store) / f"varuna_ckpt_{step}"


def step_of(folder: Path) -> int:
    """Returns the step in the name of a checkpoint's folder."""
    return int(folder.name.removeprefix("varuna_ckpt_"))


def is_complete(folder: Path) -> bool:
    """Returns true if a checkpoint has the markers of all ranks for one save."""
    try:
        return bool(markers_of(folder, complete=True))
    except (OSError, ValueError, KeyError):
        return False


def write(folder: Path, files: Files) -> dict[str, list[Any]]:
    """Writes a rank's files. Returns the size in bytes and the SHA-256 of each."""
    import torch  # imported late: the launcher, which only looks at markers, doesn't need it

    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[Any]] = {}
    for name, value in files.items():
        beside = folder / f".{name}.part"
        with open(beside, "wb") as file:
            torch.save(value, file)
            file.flush()
            os.fsync(file.fileno())
        found[name] = [beside.stat().st_size, _hash(beside)]
        os.replace(beside, folder / name)
    return found


def mark(folder: Path, rank: int, marker: Mapping[str, Any]) -> None:
    """Writes a rank's marker, its last file.

    marker: ranks, the number of ranks in the job; save, an id that is equal on all ranks; files, the result of write();
    written, the names of the tensors in each file.
    """
    place = _marker(folder, rank)
    place.parent.mkdir(parents=True, exist_ok=True)
    files.write_text(place, json.dumps(dict(marker), indent=1))


def unmark(folder: Path, rank: int) -> None:
    """Removes a rank's marker before the rank writes into the folder again."""
    _marker(folder, rank).unlink(missing_ok=True)


def upload(here: Path, folder: Path, rank: int, marker: Mapping[str, Any]) -> None:
    """Copies a rank's files to the checkpoint's folder, then writes its marker and removes the local copy. It doesn't delay
    steps that run in the meantime. Throws OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    besides = {name: folder / f".{name}.part" for name in marker["files"]}
    _hetu.copy_behind([(os.fspath(here / name), os.fspath(beside)) for name, beside in besides.items()])
    for name, beside in besides.items():
        os.replace(beside, folder / name)
    mark(folder, rank, marker)
    shutil.rmtree(here)


def markers_of(folder: Path, complete: bool) -> list[dict[str, Any]]:
    """Returns the markers of one save, by rank. With `complete`, throws OSError, which names the first missing marker,
    unless all exist."""
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
    """Returns the contents of a file. Throws OSError if they differ from what the rank has written."""
    import torch

    place = folder / file
    if not place.is_file():
        raise OSError(f"{folder}: {file} is missing, although a marker names it")
    if complete and [place.stat().st_size, _hash(place)] != marker["files"][file]:
        raise OSError(f"{folder}: {file} is damaged: its size or checksum differs from those in its marker")
    try:
        return dict(torch.load(place, weights_only=True, map_location="cpu"))
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise OSError(f"{folder}: {file} cannot be read: {type(error).__name__}") from None


def latest(store: str | os.PathLike[str]) -> int | None:
    """Returns the step of the last complete checkpoint in a store, or None."""
    steps = [int(place.name.removeprefix("varuna_ckpt_")) for place in Path(store).glob("varuna_ckpt_*")
             if place.name.removeprefix("varuna_ckpt_").isdigit()]
    return next((step for step in sorted(steps, reverse=True) if is_complete(folder_of(store, step))), None)


def _ranks(folder: Path) -> int:
    """Returns the number of ranks of the job that saved, from the first marker."""
    for place in sorted(folder.glob("markers/complete_*.txt")):
        return int(files.read_json(place)["ranks"])
    raise OSError(f"{folder}: not complete: it has no markers")


def _marker(folder: Path, rank: int) -> Path:
    return folder / "markers" / f"complete_{rank}.txt"


def _hash(path: Path) -> str:
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while part := file.read(1 << 22):
            found.update(part)
    return found.hexdigest()

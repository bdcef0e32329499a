"""The folder of a sample: new or empty before, and afterwards either complete or missing."""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def refuse_used(parser: argparse.ArgumentParser, folder: Path) -> None:
    """Ends the command if the folder is not empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        parser.error(f"{folder} exists and is not an empty folder; give a new one")


@contextmanager
def made_whole(folder: Path) -> Iterator[Path]:
    """Yields a temporary folder next to `folder` to write into. It replaces `folder` at the end, and is removed after an
    error. A symbolic link is followed and kept."""
    folder = Path(os.path.realpath(folder))
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        yield made
        made.chmod(0o755)
        os.replace(made, folder)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise

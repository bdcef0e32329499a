"""The folder that a sample is made in: new or empty before, all there or not there afterwards."""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def refuse_used(parser: argparse.ArgumentParser, folder: Path) -> None:
    """Ends the command where the folder has something in it."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        parser.error(f"{folder} exists and is no empty folder; name a new one")


@contextmanager
def made_whole(folder: Path) -> Iterator[Path]:
    """A folder beside it to write into, which takes its place at the end, and is removed if that does not come. A link is
    followed and stays."""
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

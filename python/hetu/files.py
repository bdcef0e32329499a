"""Files that users name. They are opened only if they are regular files, and replaced as a whole. This is the Python
counterpart of base/text_file.h. It uses only the standard library, so that the launcher can import it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from collections.abc import Iterator
from typing import Any, BinaryIO

MOST_JSON = 1 << 30  # bytes


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Opens a regular file for reading, without blocking. Opening a FIFO normally would block until a process writes into
    it. Throws OSError for anything else."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "is not a regular file", os.fspath(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def check_regular(path: str | os.PathLike[str]) -> None:
    """Throws OSError unless the path is a regular file that can be read. For libraries that open files by name."""
    open_regular(path).close()


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Returns the contents of a regular file. Throws OSError."""
    with open_regular(path) as file:
        return file.read()


def read_json(path: str | os.PathLike[str], most: int = MOST_JSON) -> Any:
    """Returns the value of a JSON file in UTF-8, UTF-16 or UTF-32. Throws OSError. Throws ValueError, with the file's name,
    if it is not JSON, larger than `most` bytes, or nested too deeply for the parser."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise ValueError(f"{os.fspath(path)}: has {size} bytes, but at most {most} are read")
        text = file.read()
    return parse_json(text, os.fspath(path))


def parse_json(text: bytes | str, origin: str) -> Any:
    """Returns the value of a JSON text from the file `origin`. Throws ValueError like read_json()."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError(f"{origin}: not read: its brackets nest too deeply") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{origin}: not JSON: not text in UTF-8, UTF-16 or UTF-32: {error.reason} at byte "
                         f"{error.start}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{origin}:{error.lineno}: not JSON: {error.msg}") from None


@contextlib.contextmanager
def replaced(path: str | os.PathLike[str]) -> Iterator[str]:
    """Yields the name of a new file in the same folder, and renames it to `path` afterwards. After an error the file is
    unchanged. Symbolic links are followed and kept. A device or a FIFO is not replaced: its own name is yielded."""
    target = os.path.realpath(path)
    try:
        there: int | None = os.stat(path).st_mode
    except FileNotFoundError:
        there = None
    if there is not None and not stat.S_ISREG(there):
        if stat.S_ISDIR(there):
            raise IsADirectoryError(f"{os.fspath(path)}: is a directory; name a file")
        yield os.fspath(path)
        return
    beside = f"{target}.{os.getpid()}.tmp"
    try:
        yield beside
        if there is not None:
            os.chmod(beside, stat.S_IMODE(there))
        os.rename(beside, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Replaces a file by this text in UTF-8, atomically and synced to disk. Throws OSError."""
    with replaced(path) as beside, open(beside, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        with contextlib.suppress(OSError):  # devices and FIFOs can't be synced
            os.fsync(file.fileno())

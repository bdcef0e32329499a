"""hetu.compat.varuna.checkpoint, under the name that scripts import."""

from hetu.compat.varuna.checkpoint import COMMON, Files, folder_of, latest, mark, markers_of, read, unmark, upload, write

__all__ = ["COMMON", "Files", "folder_of", "latest", "mark", "markers_of", "read", "unmark", "upload", "write"]
